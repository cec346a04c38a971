// A click -> the other theme, until the page is loaded again.
element.querySelector(".theme-switch").addEventListener("click", () => {
  const body = document.body;
  body.classList.toggle("dark");
  // what the server wrote for the system's theme would stay behind the page
  body.style.background = "var(--body-background-fill)";
  body.style.color = "var(--body-text-color)";
});
