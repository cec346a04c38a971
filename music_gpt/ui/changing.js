// The fields for key and tempo below the roll -> the prompt is asked for anew, and heard on from here.
// The server changes it, always as it was chosen; handles, playhead and zoom stay at their notes.

const ANSWER_MS = 5000; // so long an answer is awaited before the fields are sent again

// As musicians write intervals: +2, −3, 0.
function signed(semitones) {
  const sign = semitones > 0 ? "+" : semitones < 0 ? "\u2212" : "";
  return sign + Math.abs(semitones);
}

class ChangedRoll extends RollHandles {
  constructor(props) {
    super(props);
    this.change = {}; // what was asked for last: {transpose, speed}, in semitones and percent
    this.wished = null; // what was chosen meanwhile
    this.awaitedUntil = 0;
  }

  showHandles() {
    super.showHandles();
    const isFree = !this.pointNode.hidden;
    this.changeNode.hidden = !isFree;
    this.keysNode.hidden = isFree; // there is one colour only
  }

  showChange() {
    const { transpose = 0, speed = 100, transpositions = [0] } = this.value;
    const options = [...transpositions].reverse().map((n) => new Option(signed(n), n));
    const old = [...this.transposeNode.options].map((option) => option.value);
    if (old.join() !== options.map((option) => option.value).join())
      this.transposeNode.replaceChildren(...options);
    this.transposeNode.value = transpose;
    this.speedNode.value = Number(speed.toFixed(2));
  }

  get changeWords() {
    const { transpose = 0, speed = 100 } = this.value;
    const words = transpose ? ["transposed by " + signed(transpose)] : [];
    return speed === 100 ? words : [...words, `at ${Number(speed.toFixed(2))} % of the speed`];
  }

  wishChange() {
    const speed = this.speedNode.valueAsNumber;
    this.wished = {
      transpose: Number(this.transposeNode.value),
      speed: Number.isFinite(speed) ? speed : this.value.speed,
    };
    this.askForChange();
  }

  // One change at a time; of those that are wished meanwhile the last one counts.
  askForChange() {
    if (performance.now() < this.awaitedUntil) return;
    const { transpose, speed } = (this.change = this.wished);
    this.wished = null;
    if (transpose === this.value.transpose && speed === this.value.speed) {
      this.showChange();
      return;
    }
    this.awaitedUntil = performance.now() + ANSWER_MS;
    this.wants = "change";
    this.send("submit");
  }

  // There is an answer, or other music: then what was wished of this one is forgotten.
  changeAnswered(before) {
    this.awaitedUntil = 0;
    if (this.value.given !== before.given) this.wished = null;
    if (this.wished) this.askForChange();
    else this.showChange();
  }

  // Where the listener is in a prompt that was changed; null where other music is shown.
  placeIn(value, before) {
    const isSame = value.given !== undefined && value.given === before.given;
    if (!isSame || this.tab || value.tab) return null;
    const longer = before.speed / value.speed;
    const { view } = this;
    return {
      playing: this.player.playing,
      position: this.player.position * longer,
      view: view && { from: view.from * longer, seconds: view.seconds * longer },
    };
  }

  listenChange() {
    for (const node of [this.transposeNode, this.speedNode])
      node.addEventListener("change", () => this.wishChange());
  }
}
