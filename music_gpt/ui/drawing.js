// Notes, a part and a playhead -> pixels: the geometry and the painting of the roll.
// It reads fields of the PianoRoll that extends it, and changes nothing but its canvases.

const GUTTER = 44; // width of the keyboard at the left, in CSS pixels
const MARGIN = 10; // room for a handle at the right end
const TIMES = 16; // height of the times at the top, which nothing else enters
const RULER = TIMES + 10; // the same with the head of the playhead below them
const SHORTEST_SPAN = 8; // seconds that the roll shows of shorter music
const LOWEST = 40; // the pitches that are always shown, E2 to E6
const HIGHEST = 88;
const BLACK_KEYS = new Set([1, 3, 6, 8, 10]);

function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds + 1e-6));
  return Math.floor(whole / 60) + ":" + String(whole % 60).padStart(2, "0");
}

class RollDrawing {
  // ---- geometry -------------------------------------------------------------------------------

  get window() {
    return this.view || { from: 0, seconds: this.span };
  }

  get scale() {
    return (this.width - GUTTER - MARGIN) / this.window.seconds;
  }

  x(seconds) {
    return GUTTER + (seconds - this.window.from) * this.scale;
  }

  seconds(event, grip = 0) {
    const left = this.stageNode.getBoundingClientRect().left;
    return this.window.from + (event.clientX - grip - left - 1 - GUTTER) / this.scale;
  }

  zoom(factor, around = null) {
    const { from, seconds } = this.window;
    const middle = around ?? Math.min(from + seconds, Math.max(from, this.player.position));
    const wanted = Math.max(4, seconds * factor);
    if (wanted >= this.span) this.view = null;
    else this.view = { from: middle - ((middle - from) / seconds) * wanted, seconds: wanted };
    this.pan(this.window.from);
  }

  pan(from) {
    if (this.view) this.view.from = Math.max(0, Math.min(from, this.span - this.view.seconds));
    this.showHandles();
    this.dirty = true;
  }

  resize() {
    this.width = this.stageNode.clientWidth;
    this.height = this.stageNode.clientHeight;
    const ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.notesNode, this.liveNode]) {
      canvas.width = Math.round(this.width * ratio);
      canvas.height = Math.round(this.height * ratio);
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.lit = "";
    this.showHandles();
    this.dirty = true;
    this.draw();
  }

  // ---- drawing --------------------------------------------------------------------------------

  frame() {
    this.turnPage();
    if (this.dirty) this.draw();
    this.drawLive();
    this.showPosition();
    requestAnimationFrame(() => this.frame());
  }

  // A zoomed roll turns its page when the playhead reaches the edge.
  turnPage() {
    if (!this.view || !this.player.playing) return;
    const { from, seconds } = this.view;
    const position = this.player.position;
    if (position < from || position > from + seconds * 0.95) this.pan(position - seconds * 0.1);
  }

  paint() {
    if (this.colours) return this.colours;
    const style = getComputedStyle(this.root);
    const names = ["prompt", "new", "line", "ink", "soft", "sheet", "black-row", "grid", "shade"];
    this.colours = { font: "12px " + style.fontFamily };
    for (const name of names.concat("white-key", "black-key"))
      this.colours[name] = style.getPropertyValue("--mg-" + name).trim();
    return this.colours;
  }

  draw() {
    if (!this.width) return;
    this.dirty = false;
    this.lit = "";
    const pen = this.notesNode.getContext("2d");
    const paint = this.paint();
    this.range();
    pen.clearRect(0, 0, this.width, this.height);
    this.drawRows(pen, paint);
    this.drawRuler(pen, paint);
    for (const note of this.now.kept) this.drawNote(pen, note, paint.prompt);
    for (const note of this.now.fresh) this.drawNote(pen, note, paint.new);
    for (const note of this.now.open) this.drawNote(pen, note, paint.new);
    if (this.tab && !this.keyboard.isOpen) this.drawSeams(pen, paint);
    if (this.hasPart) this.drawShade(pen, paint);
    this.drawKeys(pen, paint, new Map());
  }

  range() {
    let low = LOWEST;
    let high = HIGHEST;
    for (const note of [...this.now.closed, ...this.now.open]) {
      low = Math.min(low, note.pitch - 1);
      high = Math.max(high, note.pitch + 1);
    }
    this.low = low;
    this.row = (this.height - RULER) / (high - low + 1);
  }

  y(pitch) {
    return this.height - (pitch - this.low + 1) * this.row;
  }

  drawRows(pen, paint) {
    pen.fillStyle = paint["black-row"];
    for (let pitch = this.low; this.y(pitch) > RULER - this.row; pitch++)
      if (BLACK_KEYS.has(pitch % 12)) pen.fillRect(GUTTER, this.y(pitch), this.width, this.row);
  }

  drawRuler(pen, paint) {
    const { from, seconds } = this.window;
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800];
    const step = steps.find((s) => s * this.scale >= 64) || 3600;
    pen.font = paint.font;
    pen.textBaseline = "middle";
    for (let t = Math.ceil(from / step) * step; t <= from + seconds; t += step) {
      const x = Math.round(this.x(t));
      pen.fillStyle = paint.grid;
      pen.fillRect(x, RULER, 1, this.height);
      pen.fillStyle = paint.soft;
      if (x + 34 < this.width) pen.fillText(clock(t), x + 4, TIMES / 2 + 1);
    }
    pen.fillStyle = paint.grid;
    pen.fillRect(0, RULER, this.width, 1);
  }

  drawNote(pen, note, colour, alpha = 0.35 + (0.65 * note.velocity) / 127) {
    const x = this.x(note.start);
    const width = Math.max(2, (note.end - note.start) * this.scale - 0.75);
    if (x > this.width || x + width < GUTTER) return;
    const height = Math.max(2, this.row - 0.5);
    pen.globalAlpha = alpha;
    pen.fillStyle = colour;
    pen.beginPath();
    pen.roundRect(x, this.y(note.pitch), width, height, Math.min(3, height / 2, width / 2));
    pen.fill();
    pen.globalAlpha = 1;
  }

  // Where the new music begins and, in a piece that goes on after it, ends.
  drawSeams(pen, paint) {
    pen.fillStyle = paint.soft;
    for (const seconds of [this.value.seam, this.value.until]) {
      const x = Math.round(this.x(seconds));
      if (!seconds || x < GUTTER) continue;
      for (let y = RULER; y < this.height; y += 8) pen.fillRect(x, y, 1, 4);
    }
  }

  drawShade(pen, paint) {
    const from = Math.max(GUTTER, this.x(this.held.start));
    const to = Math.max(from, this.x(this.held.end)); // all is shaded where they are typed wrong
    pen.fillStyle = paint.shade;
    pen.fillRect(GUTTER, RULER + 1, from - GUTTER, this.height);
    pen.fillRect(to, RULER + 1, this.width - to, this.height);
  }

  drawKeys(pen, paint, sounding) {
    pen.fillStyle = paint["white-key"];
    pen.fillRect(0, RULER + 1, GUTTER - 6, this.height);
    pen.font = "9.5px " + paint.font.slice(5);
    pen.textBaseline = "middle";
    for (let pitch = this.low; this.y(pitch) > RULER - this.row; pitch++) {
      const y = this.y(pitch);
      const black = BLACK_KEYS.has(pitch % 12);
      if (sounding.has(pitch) || black) {
        pen.fillStyle = sounding.get(pitch) || paint["black-key"];
        pen.fillRect(0, y, black ? (GUTTER - 6) * 0.5 : GUTTER - 6, this.row);
      }
      if (pitch % 12 === 0 || pitch % 12 === 5) {
        pen.fillStyle = "rgba(60, 50, 40, 0.35)";
        pen.fillRect(0, y + this.row, GUTTER - 6, 0.75);
      }
      if (pitch % 12 === 0 && pitch > this.low) {
        pen.fillStyle = "#6b645c";
        pen.fillText("C" + (pitch / 12 - 1), (GUTTER - 6) * 0.5 + 3, y + this.row / 2 - 1);
      }
    }
    pen.clearRect(GUTTER - 6, RULER + 1, 6, this.height);
    pen.fillStyle = paint.grid;
    pen.fillRect(GUTTER - 6, RULER, 1, this.height);
    pen.clearRect(0, 0, GUTTER, RULER);
  }

  // The playhead and the notes that sound; redrawn only when something moved.
  drawLive() {
    if (!this.width || !this.now) return;
    const position = this.player.position;
    const x = this.x(position);
    const token = [x.toFixed(1), this.now.closed.length, this.now.open.length, this.player.playing].join();
    if (token === this.lit) return;
    this.lit = token;
    const pen = this.liveNode.getContext("2d");
    const paint = this.paint();
    pen.clearRect(0, 0, this.width, this.height);
    if (!this.now.end) return;
    if (this.player.playing || this.keyboard.isOpen) this.drawSounding(pen, paint, position);
    if (x >= GUTTER - 1 && x <= this.width) {
      pen.fillStyle = paint.ink;
      pen.fillRect(x - 0.75, RULER - 6, 1.5, this.height);
      pen.beginPath();
      pen.moveTo(x - 6, TIMES);
      pen.lineTo(x + 6, TIMES);
      pen.lineTo(x, RULER - 1);
      pen.fill();
    }
  }

  drawSounding(pen, paint, position) {
    const keys = new Map();
    const light = (notes, colour) => {
      for (const note of notes) {
        if (note.start > position || note.end < position) continue;
        this.drawNote(pen, note, colour, 1);
        keys.set(note.pitch, colour);
      }
    };
    light(this.now.kept, paint.prompt);
    light(this.now.fresh, paint.new);
    light(this.now.open, paint.new);
    if (keys.size) this.drawKeys(pen, paint, keys);
  }
}
