// A click -> the other theme, until the page is loaded again.
element.querySelector(".theme-switch").addEventListener("click", () => {
  document.body.classList.toggle("dark");
});
