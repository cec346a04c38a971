// A click -> the keyboard under the roll.
element.querySelector("button").addEventListener("click", () => {
  document.querySelector("#roll .mg-roll").musicGptRoll.play();
});
