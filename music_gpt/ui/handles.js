// Two handles on the roll -> the part of the prompt that is continued, or one to compose anew.
// It moves them, marks and types their times; what is heard and shown besides is PianoRoll's.
// A handle stays within the music. A number that is typed stays as it is: where it cannot be meant,
// its field says so at once, and the page in a sentence when Compose is pressed.

const MIN_PART = 0.5; // seconds between the two handles
const FIRST_MARK = 4; // seconds that are marked at first

class RollHandles extends RollDrawing {
  constructor(props) {
    super();
    this.props = props;
    this.part = { start: 0, end: 0 };
    this.ownStart = false; // whether the start of the part was set by hand
    this.marking = false; // whether the handles hold a part to be composed anew
    this.mark = { start: 0, end: 0 };
    this.candidates = props.candidates;
  }

  get held() {
    return this.marking ? this.mark : this.part;
  }

  // Whether the handles hold a part of what is shown.
  get hasPart() {
    if (this.keyboard.isOpen) return false;
    return this.marking || (!this.tab && this.value.state !== "empty");
  }

  showHandles() {
    const { start, end } = this.held;
    const whole = this.now.end;
    const shown = whole > 0 && this.hasPart;
    this.moveHandle(this.fromNode, start, shown);
    this.moveHandle(this.toNode, end, shown);
    const purpose = this.marking ? "compose anew" : "continue";
    this.fromNode.setAttribute("aria-label", "Start of the part to " + purpose);
    this.toNode.setAttribute("aria-label", "End of the part to " + purpose);
    this.fromNode.title = this.marking ? "" : "What is before this is left out";
    this.toNode.title = this.marking ? "" : "The new music begins here";
    this.root.dataset.marking = this.marking;
    this.redoNode.setAttribute("aria-pressed", String(this.marking));
    this.redoNode.textContent = this.marking ? "Cancel" : "Redo a part";
    this.redoNode.disabled = whole < MIN_PART || ["composing", "redoing"].includes(this.value.state);
    this.continueNode.hidden = !this.tab || this.marking || this.busy;
    this.markNode.hidden = !this.marking;
    this.seedNode.hidden = this.marking;
    this.pointNode.hidden = !shown || this.marking;
    this.showNumber(this.secondsNode, this.part.end, this.part.end > this.part.start);
    const inOrder = this.mark.start < this.mark.end;
    this.showNumber(this.firstNode, this.mark.start, inOrder);
    this.showNumber(this.lastNode, this.mark.end, inOrder);
    this.waysNode.value = this.candidates;
  }

  showNumber(node, seconds, fits) {
    const within = seconds >= 0 && seconds <= this.now.end + 0.01; // what is shown is rounded
    node.value = Number(seconds.toFixed(2));
    node.setAttribute("aria-invalid", String(!(fits && within)));
  }

  moveHandle(node, seconds, shown) {
    const x = this.x(seconds);
    node.hidden = !shown || x < GUTTER - 23 || x > this.width + 23;
    node.style.left = Math.min(this.width - 1, Math.max(GUTTER, x)) + "px";
    node.setAttribute("aria-valuemax", this.now.end.toFixed(1));
    node.setAttribute("aria-valuenow", seconds.toFixed(1));
    node.setAttribute("aria-valuetext", seconds.toFixed(1) + " seconds");
  }

  move(which, seconds) {
    if (this.marking) this.setMark(...this.markWith(which, seconds));
    else this.movePart(which, seconds);
  }

  // Until its start is set by hand, the part reaches back as far as the page does by itself.
  movePart(which, seconds) {
    const { start, end } = this.part;
    if (which === "start") {
      this.ownStart = true;
      this.part.start = Math.max(0, Math.min(seconds, end - MIN_PART));
    } else {
      const least = (this.ownStart ? start : 0) + MIN_PART;
      this.part.end = Math.min(this.now.end, Math.max(seconds, least));
      if (!this.ownStart) this.part.start = Math.max(0, this.part.end - this.value.reach);
    }
    this.showHandles();
    this.dirty = true;
  }

  // The music goes on from here, also from before the start of the part.
  continueFrom(seconds) {
    if (seconds < this.part.start + MIN_PART) this.ownStart = false;
    this.part.end = seconds;
    if (!this.ownStart) this.part.start = Math.max(0, seconds - this.value.reach);
  }

  // ---- the part to be composed anew -----------------------------------------------------------

  toggleMarking() {
    this.marking = !this.marking;
    const from = Math.min(this.player.position, this.now.end - FIRST_MARK);
    if (this.marking) this.setMark(from, from + FIRST_MARK);
    this.showHandles();
    this.dirty = true;
  }

  // One end moves; it takes the other along where they would be too far apart.
  markWith(which, seconds) {
    const { start, end } = this.mark;
    const most = this.props.longest_redo;
    if (which === "start") {
      const from = Math.min(seconds, end - MIN_PART);
      return [from, Math.min(end, from + most)];
    }
    const to = Math.max(seconds, start + MIN_PART);
    return [Math.max(start, to - most), to];
  }

  setMark(one, other) {
    const whole = this.now.end;
    const start = Math.max(0, Math.min(one, other, whole - MIN_PART));
    const end = Math.min(whole, Math.max(one, other, start + MIN_PART), start + this.props.longest_redo);
    this.mark = { start, end };
    this.showHandles();
    this.dirty = true;
  }

  // ---- input ----------------------------------------------------------------------------------

  listenHandles() {
    this.listenHandle(this.fromNode, "start");
    this.listenHandle(this.toNode, "end");
    const typed = (node, take) =>
      node.addEventListener("change", () => {
        if (Number.isFinite(node.valueAsNumber)) take(node.valueAsNumber);
        this.showHandles();
        this.dirty = true;
      });
    typed(this.secondsNode, (seconds) => this.continueFrom(seconds));
    typed(this.firstNode, (seconds) => (this.mark.start = seconds));
    typed(this.lastNode, (seconds) => (this.mark.end = seconds));
    typed(this.waysNode, (ways) => (this.candidates = ways));
    this.hereNode.addEventListener("click", () => {
      this.continueFrom(this.player.position);
      this.showHandles();
      this.dirty = true;
    });
    this.redoNode.addEventListener("click", () => this.toggleMarking());
  }

  listenHandle(node, which) {
    node.addEventListener("pointerdown", (event) => {
      node.setPointerCapture(event.pointerId);
      node.dataset.grip = event.clientX - node.getBoundingClientRect().left - 22;
    });
    node.addEventListener("pointermove", (event) => {
      if (!node.hasPointerCapture(event.pointerId)) return;
      this.move(which, this.seconds(event, Number(node.dataset.grip)));
    });
    node.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.5, ArrowRight: 0.5, PageDown: -5, PageUp: 5 }[event.key];
      if (event.key === "Home") this.move(which, 0);
      else if (event.key === "End") this.move(which, this.now.end);
      else if (step) this.move(which, this.held[which] + step);
      else return;
      event.preventDefault();
    });
  }
}
