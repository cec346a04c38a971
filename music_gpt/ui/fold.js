// A click -> the advanced fields, shown or folded away.
const button = element.querySelector("button");
button.addEventListener("click", () => {
  const open = button.getAttribute("aria-expanded") !== "true";
  button.setAttribute("aria-expanded", String(open));
  document.querySelector("#advanced").classList.toggle("folded", !open);
});
