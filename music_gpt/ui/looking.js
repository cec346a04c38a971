// Who looks inside the network -> is told which note is pressed; what it looked at glows in the roll.
// What is found there is shown by inside.js.

const DIMMED = 0.6; // how far the rest of the music fades
const FINGER = 12; // pixels beside a note where it is still meant

class LookedRoll extends PlayedRoll {
  constructor(props) {
    super(props);
    this.looking = null; // whom to tell
    this.glow = null; // what the network looked at
  }

  // A press moves the playhead, but on a note while one looks inside.
  press(event) {
    const note = this.looking && this.noteAt(event);
    if (note) this.looking.picked(note);
    else this.player.seek(this.seconds(event));
  }

  // Somebody looks inside: is told which notes are pressed, when other music is in view, and when
  // what was looked at is drawn.
  look(looking) {
    this.looking = looking;
    this.root.dataset.looking = Boolean(looking);
    this.showGlow(null);
  }

  // What the network looked at, over the music; the event itself is brought into view.
  showGlow(glow) {
    this.glow = glow;
    const { from, seconds } = this.window;
    const at = glow && glow.chosen ? glow.chosen.start : from;
    if (at < from || at > from + seconds) this.pan(at - seconds * 0.6);
    this.dirty = true;
  }

  tellLooking() {
    if (!this.looking) return;
    this.glow = null;
    this.looking.shown();
  }

  // ---- drawing --------------------------------------------------------------------------------

  draw() {
    super.draw();
    if (!this.width || !this.glow) return;
    const pen = this.notesNode.getContext("2d");
    this.drawGlow(pen, this.paint());
    this.drawKeys(pen, this.paint(), new Map());
    this.looking.drawn(this.notesNode);
    // what is heard, marked or played is seen in its own colours; a copy of the glow stands elsewhere
    if (this.keyboard.isOpen || this.marking || this.player.playing) super.draw();
  }

  // What the network looked at: all else fades. Waits stand at the bottom, releases at their notes.
  drawGlow(pen, paint) {
    pen.globalAlpha = DIMMED;
    pen.fillStyle = paint.sheet;
    pen.fillRect(GUTTER, RULER + 1, this.width, this.height);
    pen.globalAlpha = 1;
    for (const event of this.glow.events) this.drawLookedAt(pen, paint, event);
    if (this.glow.chosen) this.drawChosen(pen, paint, this.glow.chosen);
  }

  drawLookedAt(pen, paint, event) {
    const { kind, start, end, pitch, strength } = event;
    const { seam, until } = this.value;
    const isNew = this.tab && start >= seam - 0.001 && (!until || start < until - 0.001);
    if (kind === "n") return this.drawNote(pen, event, isNew ? paint.new : paint.prompt, strength);
    if (kind === "s") return;
    const isRelease = kind === "r";
    const x = isRelease ? this.x(end) - 1 : this.x(start);
    const width = isRelease ? 3 : Math.max(3, (end - start) * this.scale);
    if (x + width < GUTTER) return;
    pen.globalAlpha = strength;
    pen.fillStyle = paint.ink;
    if (isRelease) pen.fillRect(x, this.y(pitch), width, Math.max(2, this.row - 0.5));
    else pen.fillRect(x, this.height - 8, width, 5.5);
    pen.globalAlpha = 1;
  }

  // The event that one looks at: a frame around its note, or a line at its time.
  drawChosen(pen, paint, { kind, start, end, pitch }) {
    const x = this.x(start);
    if (x < GUTTER - 1 || x > this.width) return;
    pen.strokeStyle = paint.ink;
    pen.lineWidth = 1.5;
    if (kind === "n" || kind === "r") {
      const width = Math.max(4, (end - start) * this.scale);
      pen.strokeRect(x - 1.5, this.y(pitch) - 1.5, width + 3, Math.max(2, this.row) + 2.5);
    } else pen.strokeRect(x, this.height - 10, Math.max(4, (end - start) * this.scale), 10);
  }

  // Where a note is struck, in pixels of the stage.
  placeOf({ start, end, pitch }) {
    const x = this.x(start) + Math.min(2, ((end - start) * this.scale) / 2);
    return { x, y: this.y(pitch) + this.row / 2, seconds: Number(start.toFixed(2)) };
  }

  // The note under a finger, or the nearest one within its width; null where there is none.
  noteAt(event) {
    const box = this.stageNode.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - 1, event.clientY - box.top - 1];
    let [nearest, least] = [null, FINGER];
    for (const note of this.now.closed) {
      const across = Math.max(this.x(note.start) - x, x - this.x(note.end), 0);
      const up = Math.max(this.y(note.pitch) - y, y - this.y(note.pitch) - this.row, 0);
      const apart = Math.hypot(across, up);
      if (apart < least) [nearest, least] = [note, apart];
    }
    return nearest;
  }
}
