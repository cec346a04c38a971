// A MIDI keyboard, the letters of a computer, fingers on the page -> keys that sound and are recorded.
// It knows its own panel and the player. What is recorded is drawn by the roll, and becomes a prompt
// in the way of any MIDI file.

const LETTERS = [
  ...["KeyA", "KeyW", "KeyS", "KeyE", "KeyD", "KeyF", "KeyT", "KeyG", "KeyY", "KeyH", "KeyU", "KeyJ"],
  ...["KeyK", "KeyO", "KeyL", "KeyP", "Semicolon"],
]; // from a C upwards, as the keys of a piano lie
const OCTAVES = { KeyZ: -12, KeyX: 12 };
const FIRST_C = 60;
const LOWEST_C = 24;
const HIGHEST_C = 96;
const FIRM = 80; // velocity of a letter, which does not tell how it is struck
const SOFT = 40; // of a finger far up on a key, and LOUD near its edge
const LOUD = 112;
const WHITE_WIDTH = 34; // of a white key on the page, at least
const WHITES = [0, 2, 4, 5, 7, 9, 11];
const FIELDS = "input, textarea, select, [contenteditable]"; // in which one types
const HOW = "Play: letters A to L, these keys, or a MIDI keyboard. Space is the pedal.";
const HOW_BY_TOUCH = "Play on these keys, or on a MIDI keyboard.";

class PianoKeyboard {
  // `use(file)` takes what was played; `changed()` is called when it opens and closes.
  constructor(root, player, use, changed) {
    this.root = root;
    this.player = player;
    this.use = use;
    this.changed = changed;
    this.isOpen = false;
    this.recording = new Recording();
    this.base = FIRST_C;
    this.pointers = new Map(); // id of a finger -> pitch under it
    this.letters = new Map(); // letter that is down -> its pitch
    this.inputs = [];
    this.names = {};
    this.byTouch = matchMedia("(pointer: coarse)").matches; // there are no letters to press
    for (const name of ["keys", "told", "source", "use", "again", "cancel", "lower", "higher"])
      this[name + "Node"] = root.querySelector(".mg-played-" + name);
    this.listen();
  }

  async open() {
    if (this.isOpen) return;
    this.player.pause();
    this.player.unlock(); // a click is under way, and a MIDI key is none
    this.isOpen = true;
    this.root.hidden = false;
    this.startOver();
    this.layOut();
    this.changed();
    this.keysNode.focus({ preventScroll: true });
    await this.findNames();
    await this.findInputs();
  }

  close() {
    if (!this.isOpen) return;
    this.letGo();
    for (const input of this.inputs) input.onmidimessage = null;
    this.inputs = [];
    this.isOpen = false;
    this.root.hidden = true;
    this.changed();
  }

  startOver() {
    this.letGo();
    this.recording = new Recording();
    this.show();
  }

  send() {
    const bytes = this.recording.midi(performance.now());
    this.letGo();
    this.use(new File([bytes], "My playing.mid", { type: "audio/midi" }));
  }

  // All that is down comes up, as when the window is left.
  letGo() {
    const now = performance.now();
    this.pedal(false, now);
    for (const note of [...this.recording.sounding.values()]) this.up(note.pitch, now);
    this.letters.clear();
    this.pointers.clear();
  }

  // The letters come up before they stand for other keys.
  letLettersGo() {
    for (const pitch of this.letters.values()) this.up(pitch, performance.now());
    this.letters.clear();
  }

  // ---- keys and the pedal -----------------------------------------------------------------------

  down(pitch, velocity, stamp) {
    if (pitch < 21 || pitch > 108) return; // not a key of a piano
    this.recording.down(pitch, velocity, stamp);
    this.player.press("live" + pitch, pitch, velocity);
    this.light(pitch, true);
    this.show();
  }

  up(pitch, stamp) {
    this.recording.up(pitch, stamp);
    if (!this.recording.pedal) this.player.lift("live" + pitch);
    this.light(pitch, false);
    this.show();
  }

  pedal(isDown, stamp) {
    const rang = [...this.recording.sounding.values()].filter((note) => !note.held);
    this.recording.press(isDown, stamp);
    if (!isDown) for (const { pitch } of rang) this.player.lift("live" + pitch);
    this.show();
  }

  light(pitch, isDown) {
    const key = this.keysNode.querySelector(`[data-pitch="${pitch}"]`);
    if (key) key.classList.toggle("mg-down", isDown);
  }

  // ---- what is seen -----------------------------------------------------------------------------

  show() {
    const { count, seconds, pedal } = this.recording;
    this.useNode.disabled = this.againNode.disabled = !count;
    const notes = count === 1 ? "1 note" : count.toLocaleString("en") + " notes";
    const told = `Recording · ${clock(seconds)} · ${notes}`;
    this.toldNode.textContent = count ? told + (pedal ? " · pedal" : "") : this.byTouch ? HOW_BY_TOUCH : HOW;
    this.root.dataset.recording = Boolean(count);
  }

  // As many keys as have room, from the C of the letter A on, or an octave below it.
  layOut() {
    const width = this.keysNode.clientWidth || 300;
    const n = Math.max(8, Math.min(22, Math.floor(width / WHITE_WIDTH)));
    const first = n > 14 ? this.base - 12 : this.base;
    const keys = [];
    for (let white = 0; white < n; white++) {
      const pitch = first + 12 * Math.floor(white / 7) + WHITES[white % 7];
      keys.push(this.makeKey(pitch, false, white / n, 1 / n));
      const hasBlack = ![4, 11].includes(pitch % 12) && white + 1 < n;
      if (hasBlack) keys.push(this.makeKey(pitch + 1, true, (white + 0.68) / n, 0.64 / n));
    }
    this.keysNode.replaceChildren(...keys.filter((key) => key.dataset.pitch <= 108));
    this.lowerNode.disabled = this.base <= LOWEST_C;
    this.higherNode.disabled = this.base >= HIGHEST_C;
    for (const note of this.recording.sounding.values()) if (note.held) this.light(note.pitch, true);
  }

  makeKey(pitch, isBlack, left, width) {
    const key = document.createElement("div");
    key.className = isBlack ? "mg-key mg-black" : "mg-key";
    key.dataset.pitch = pitch;
    key.style.left = 100 * left + "%";
    key.style.width = 100 * width + "%";
    const label = document.createElement("span");
    label.textContent = this.names[LETTERS[pitch - this.base]] || "";
    key.append(label);
    if (pitch % 12 === 0) key.dataset.name = "C" + (pitch / 12 - 1);
    return key;
  }

  shift(semitones) {
    const base = this.base + semitones;
    if (base < LOWEST_C || base > HIGHEST_C) return;
    this.letLettersGo();
    this.base = base;
    this.layOut();
  }

  // What stands on the keys of this computer: not every one is laid out as an English one.
  async findNames() {
    if (this.byTouch) return;
    const plain = (code) => (code === "Semicolon" ? ";" : code.slice(3));
    this.names = Object.fromEntries(LETTERS.map((code) => [code, plain(code)]));
    try {
      const layout = await navigator.keyboard.getLayoutMap();
      for (const code of LETTERS)
        if (layout.has(code)) this.names[code] = layout.get(code).toUpperCase();
    } catch {
      // this browser does not tell
    }
    if (this.isOpen) this.layOut();
  }

  // ---- MIDI keyboards ---------------------------------------------------------------------------

  async findInputs() {
    this.sourceNode.textContent = "";
    if (!navigator.requestMIDIAccess) {
      this.sourceNode.textContent = "This browser does not reach MIDI keyboards";
      return;
    }
    try {
      const access = await navigator.requestMIDIAccess();
      access.onstatechange = () => this.listenTo(access);
      this.listenTo(access);
    } catch {
      this.sourceNode.textContent = "MIDI keyboards are not allowed in this browser";
    }
  }

  listenTo(access) {
    if (!this.isOpen) return;
    this.inputs = [...access.inputs.values()];
    for (const input of this.inputs) input.onmidimessage = (message) => this.hear(message);
    const names = this.inputs.map((input) => input.name || "a MIDI keyboard").join(", ");
    this.sourceNode.textContent = names || "No MIDI keyboard is connected";
  }

  hear({ data, timeStamp }) {
    if (!this.isOpen) return;
    const [status, number, value] = data;
    const stamp = timeStamp || performance.now();
    const kind = status & 0xf0;
    if (kind === 0x90 && value) this.down(number, value, stamp);
    else if (kind === 0x90 || kind === 0x80) this.up(number, stamp);
    else if (kind === 0xb0 && number === PEDAL) this.pedal(value >= 64, stamp);
  }

  // ---- letters and fingers ----------------------------------------------------------------------

  listen() {
    document.addEventListener("keydown", (event) => this.letterDown(event), true);
    document.addEventListener("keyup", (event) => this.letterUp(event), true);
    window.addEventListener("blur", () => this.isOpen && this.letGo());
    this.useNode.addEventListener("click", () => this.send());
    this.againNode.addEventListener("click", () => this.startOver());
    this.cancelNode.addEventListener("click", () => this.close());
    this.lowerNode.addEventListener("click", () => this.shift(-12));
    this.higherNode.addEventListener("click", () => this.shift(12));
    const keys = this.keysNode;
    keys.addEventListener("pointerdown", (event) => this.finger(event));
    keys.addEventListener("pointermove", (event) => this.pointers.has(event.pointerId) && this.finger(event));
    for (const end of ["pointerup", "pointercancel"])
      document.addEventListener(end, (event) => this.fingerUp(event));
    new ResizeObserver(() => this.isOpen && this.layOut()).observe(keys);
  }

  letterDown(event) {
    if (!this.isOpen || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest && event.target.closest(FIELDS)) return;
    if (event.code === "Space" && event.target.closest("button")) return; // it is pressed
    const pitch = LETTERS.includes(event.code) ? this.base + LETTERS.indexOf(event.code) : null;
    const isOurs = pitch !== null || event.code in OCTAVES || event.code === "Space";
    if (!isOurs) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (event.repeat) return;
    if (event.code === "Space") this.pedal(true, event.timeStamp);
    else if (pitch === null) this.shift(OCTAVES[event.code]);
    else if (!this.letters.has(event.code)) {
      this.letters.set(event.code, pitch);
      this.down(pitch, FIRM, event.timeStamp);
    }
  }

  letterUp(event) {
    if (!this.isOpen) return;
    if (event.code === "Space") this.pedal(false, event.timeStamp);
    if (!this.letters.has(event.code)) return;
    this.up(this.letters.get(event.code), event.timeStamp);
    this.letters.delete(event.code);
  }

  // A finger that is drawn across the keys strikes one after the other.
  finger(event) {
    const key = document.elementFromPoint(event.clientX, event.clientY)?.closest?.(".mg-key");
    if (event.type === "pointerdown") {
      event.preventDefault(); // the keys keep the focus
      this.keysNode.focus({ preventScroll: true });
      if (event.target.hasPointerCapture?.(event.pointerId))
        event.target.releasePointerCapture(event.pointerId);
    }
    const pitch = key && this.keysNode.contains(key) ? Number(key.dataset.pitch) : null;
    const before = this.pointers.get(event.pointerId);
    if (pitch === before) return;
    if (before != null) this.up(before, event.timeStamp);
    this.pointers.set(event.pointerId, pitch);
    if (pitch === null) return;
    const box = key.getBoundingClientRect();
    const share = Math.max(0, Math.min(1, (event.clientY - box.top) / box.height));
    this.down(pitch, Math.round(SOFT + (LOUD - SOFT) * share), event.timeStamp);
  }

  fingerUp(event) {
    const pitch = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (this.isOpen && pitch != null) this.up(pitch, event.timeStamp);
  }
}
