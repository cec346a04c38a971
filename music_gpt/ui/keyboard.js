// A MIDI keyboard, the letters of a computer, fingers on the page -> keys that sound and are recorded.
// It knows its own panel, the player and the recording. What is recorded is drawn by the roll, and
// becomes a prompt in the way of any MIDI file.

const LETTERS = [
  ...["KeyA", "KeyW", "KeyS", "KeyE", "KeyD", "KeyF", "KeyT", "KeyG", "KeyY", "KeyH", "KeyU", "KeyJ"],
  ...["KeyK", "KeyO", "KeyL", "KeyP", "Semicolon"],
]; // from a C upwards, as the keys of a piano lie
const OCTAVES = { KeyZ: -12, KeyX: 12 };
const FIRST_C = 60; // of the letters at first, and the lowest and highest that it can be
const LOWEST_C = 24;
const HIGHEST_C = 84;
const LOWEST_KEY = 21; // of a piano
const HIGHEST_KEY = 108;
const FIRM = 80; // velocity of a letter, which does not tell how it is struck
const SOFT = 40; // of a finger far up on a key, and LOUD near its edge
const LOUD = 112;
const WHITE_WIDTH = 34; // of a white key on the page, at least
const FEWEST_WHITES = 8;
const MOST_WHITES = 22;
const HALF_PEDAL = 64; // from here on it is down
const SEND_MS = 10_000; // after which what was sent may be sent again
const OTHER_CLOCK_MS = 5000; // further from now is no time of this page
const CHOSEN = "[type=checkbox], [type=radio], [type=range]";
const TYPED = `input:not(${CHOSEN}), textarea, select, [contenteditable]`; // where letters are typed
const PRESSED = `button, ${CHOSEN}`; // what space is for
const SENT = "Reading what you played …";
const HOW = "Play with these letters, a finger, or a MIDI keyboard. Space is the pedal.";
const HOW_BY_TOUCH = "Play on these keys, or on a MIDI keyboard.";
const BEYOND = "keys beyond the 88 of a piano are left out";
const AGAIN = "Start over";
const BACK = "Bring back"; // what it says while nothing new was played

function holderOf(input) {
  return `midi ${input.id} `;
}

class PianoKeyboard {
  // `roll` is told what happens: use(file) takes what was played and says whether it could,
  // opened(), laidOut() and closed(), left() after Cancel, moved() after each key, and say(text) for
  // those who hear the page.
  constructor(root, player, roll) {
    this.root = root;
    this.player = player;
    this.roll = roll;
    this.isOpen = false;
    this.isSent = false;
    this.sent = 0; // notes of what was sent last
    this.recording = new Recording();
    this.leftOff = null; // what was played before a new start, until something new is
    this.base = FIRST_C;
    this.holders = new Map(); // pitch -> what holds it: a MIDI input, a letter, a finger
    this.feet = new Set(); // what holds the pedal
    this.fingers = new Map(); // id of a finger -> the pitch under it
    this.access = null;
    this.inputs = [];
    this.timer = 0;
    this.names = {};
    this.byTouch = matchMedia("(pointer: coarse)").matches; // there are no letters to press
    for (const name of ["keys", "told", "source", "use", "again", "cancel", "lower", "higher"])
      this[name + "Node"] = root.querySelector(".mg-played-" + name);
    this.listen();
  }

  // What was played before and not used is still there.
  open() {
    this.player.unlock(); // a click is under way, and a MIDI key is none
    if (!this.isOpen) this.begin();
    this.focus();
  }

  begin() {
    this.opener = document.activeElement;
    this.isOpen = true;
    this.recording.goOn();
    this.roll.opened();
    this.layOut();
    this.show();
    this.roll.say(this.how);
    this.findNames();
    this.findInputs();
  }

  focus() {
    this.keysNode.focus({ preventScroll: true });
  }

  close() {
    if (!this.isOpen) return;
    const hadFocus = this.root.contains(document.activeElement);
    this.liftAll();
    if (this.access) this.access.onstatechange = null;
    for (const input of this.inputs) this.forget(input);
    this.inputs = [];
    this.isSent = false;
    this.isOpen = false;
    this.roll.closed();
    if (hadFocus && this.opener) this.opener.focus({ preventScroll: true });
  }

  // A foot that stays on the pedal tells nothing more.
  startOver() {
    this.liftKeys();
    this.recording.press(false, performance.now());
    this.player.liftAll("live");
    const { leftOff } = this;
    this.leftOff = this.recording.count ? this.recording : null;
    this.recording = (!this.leftOff && leftOff) || new Recording();
    this.recording.goOn();
    this.recording.press(this.feet.size > 0, performance.now());
    this.show();
  }

  send() {
    const bytes = this.recording.midi(performance.now());
    this.focus(); // the button cannot keep it
    this.liftKeys();
    this.recording.press(false, performance.now());
    this.player.liftAll("live");
    this.isSent = true;
    this.sent = this.recording.count;
    this.show();
    this.roll.say(SENT);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refused("Nothing has come back yet; try again."), SEND_MS);
    const isUsed = this.roll.use(new File([bytes], MY_PLAYING + ".mid", { type: "audio/midi" }));
    if (!isUsed) this.refused("The page is still reading a file; try again.");
  }

  // Other music is shown; where it is what was sent, nothing of it has to be kept.
  leave(isMine) {
    if (isMine && this.sent && this.sent === this.recording.count) this.recording = new Recording();
    if (isMine) this.sent = 0;
    if (isMine) this.leftOff = null;
    this.close();
  }

  // What was sent was no prompt, or did not arrive: one may go on.
  refused(why) {
    clearTimeout(this.timer);
    if (!this.isSent) return;
    this.isSent = false;
    this.recording.goOn();
    this.recording.press(this.feet.size > 0, performance.now());
    this.show();
    this.toldNode.textContent = why;
    this.roll.say(why);
  }

  // ---- keys and the pedal -----------------------------------------------------------------------

  // A key that is held from two sides is one key.
  down(holder, pitch, velocity, stamp) {
    if (this.isSent) return;
    if (pitch < LOWEST_KEY || pitch > HIGHEST_KEY) return this.beyond();
    const held = this.holders.get(pitch) || new Set();
    const isNew = !held.size || held.has(holder);
    this.holders.set(pitch, held.add(holder));
    if (!isNew) return;
    if (!this.recording.count) this.roll.say("Recording");
    this.leftOff = null;
    this.recording.down(pitch, velocity, stamp);
    this.player.press("live" + pitch, pitch, velocity);
    this.light(pitch, true);
    this.show();
  }

  // Said beside the name of the keyboard, and once to those who hear the page.
  beyond() {
    if (this.saidBeyond) return;
    this.saidBeyond = true;
    this.sourceNode.textContent += " · " + BEYOND;
    this.roll.say(BEYOND);
  }

  up(holder, pitch, stamp) {
    const held = this.holders.get(pitch);
    if (!held || !held.delete(holder) || held.size) return;
    this.holders.delete(pitch);
    this.recording.up(pitch, stamp);
    if (!this.recording.pedal) this.player.lift("live" + pitch);
    this.light(pitch, false);
    this.show();
  }

  pedal(foot, isDown, stamp) {
    if (isDown) this.feet.add(foot);
    else this.feet.delete(foot);
    if (this.isSent) return;
    this.recording.press(this.feet.size > 0, stamp);
    const held = [...this.holders.keys()].map((pitch) => "live" + pitch);
    if (!this.feet.size) this.player.liftAll("live", held);
    this.show();
  }

  // Those keys come up that something of this kind holds, as where it is not heard any more.
  liftKeys(kind = "", stamp = performance.now()) {
    for (const [pitch, held] of [...this.holders])
      for (const holder of [...held]) if (holder.startsWith(kind)) this.up(holder, pitch, stamp);
    if ("finger".startsWith(kind)) this.fingers.clear();
  }

  liftAll() {
    for (const foot of [...this.feet]) this.pedal(foot, false, performance.now());
    this.liftKeys();
  }

  get isUnused() {
    return this.recording.count > 0;
  }

  // Another window has the letters, but not the MIDI keyboard.
  blur() {
    this.pedal("space", false, performance.now());
    this.liftKeys("letter");
    this.liftKeys("finger");
  }

  light(pitch, isDown) {
    const key = this.keysNode.querySelector(`[data-pitch="${pitch}"]`);
    if (key) key.classList.toggle("mg-down", isDown);
  }

  // ---- what is seen -----------------------------------------------------------------------------

  get how() {
    return this.byTouch ? HOW_BY_TOUCH : HOW;
  }

  show() {
    const { count, seconds, pedal } = this.recording;
    this.useNode.disabled = this.isSent || !count;
    this.againNode.disabled = this.isSent || !(count || this.leftOff);
    this.againNode.textContent = this.leftOff ? BACK : AGAIN;
    this.cancelNode.disabled = this.isSent;
    const notes = count === 1 ? "1 note" : count.toLocaleString("en") + " notes";
    const told = `Recording · ${clock(seconds)} · ${notes}` + (pedal ? " · pedal" : "");
    this.toldNode.textContent = this.isSent ? SENT : count ? told : this.how;
    this.root.dataset.recording = Boolean(count) && !this.isSent;
    this.roll.moved();
  }

  // As many keys as have room, from the C of the first letter on, or an octave below it.
  layOut() {
    const room = Math.floor(this.keysNode.clientWidth / WHITE_WIDTH);
    const n = Math.max(FEWEST_WHITES, Math.min(MOST_WHITES, room));
    const first = n > 14 ? Math.max(LOWEST_C, this.base - 12) : this.base;
    const keys = [];
    for (let pitch = first, white = 0; white < n; pitch++) {
      if (BLACK_KEYS.has(pitch % 12)) {
        keys.push(this.makeKey(pitch, "mg-key mg-black", (white - 0.32) / n, 0.64 / n));
      } else {
        keys.push(this.makeKey(pitch, "mg-key", white / n, 1 / n));
        white++;
      }
    }
    this.keysNode.replaceChildren(...keys);
    this.lowerNode.disabled = this.base <= LOWEST_C;
    this.higherNode.disabled = this.base >= HIGHEST_C;
    for (const pitch of this.holders.keys()) this.light(pitch, true);
  }

  makeKey(pitch, className, left, width) {
    const key = document.createElement("div");
    key.className = className;
    key.dataset.pitch = pitch;
    key.style.left = 100 * left + "%";
    key.style.width = 100 * width + "%";
    const label = document.createElement("span");
    label.textContent = this.names[LETTERS[pitch - this.base]] || "";
    key.append(label);
    if (pitch % 12 === 0) key.dataset.name = "C" + (pitch / 12 - 1);
    return key;
  }

  // The letters come up before they stand for other keys.
  shift(semitones) {
    const base = this.base + semitones;
    this.focus();
    if (base < LOWEST_C || base > HIGHEST_C) return;
    this.liftKeys("letter");
    this.base = base;
    this.layOut();
  }

  // What stands on the keys of this computer: not every one is laid out as an English one.
  async findNames() {
    if (this.byTouch) return;
    const codes = [...LETTERS, ...Object.keys(OCTAVES)];
    this.names = Object.fromEntries(codes.map((code) => [code, code.replace("Key", "")]));
    this.names.Semicolon = ";";
    try {
      const layout = await navigator.keyboard.getLayoutMap();
      for (const code of codes)
        if (layout.has(code)) this.names[code] = layout.get(code).toUpperCase();
    } catch {
      // this browser does not tell
    }
    this.lowerNode.title = `An octave lower (${this.names.KeyZ})`;
    this.higherNode.title = `An octave higher (${this.names.KeyX})`;
    if (this.isOpen) this.layOut();
  }

  // ---- MIDI keyboards ---------------------------------------------------------------------------

  async findInputs() {
    this.tellSource("");
    if (!navigator.requestMIDIAccess) {
      return this.tellSource(
        window.isSecureContext
          ? "This browser does not reach MIDI keyboards"
          : "MIDI keyboards are reached at 127.0.0.1 or by https only"
      );
    }
    try {
      this.access = this.access || (await navigator.requestMIDIAccess());
      this.access.onstatechange = () => this.listenTo();
      this.listenTo();
    } catch (error) {
      const isForbidden = ["NotAllowedError", "SecurityError"].includes(error.name);
      this.tellSource(
        isForbidden
          ? "MIDI keyboards are not allowed in this browser; allow them for this page"
          : "This machine offers no MIDI keyboard"
      );
    }
  }

  // Where the keys come from.
  tellSource(text) {
    this.sourceNode.textContent = text;
    this.saidBeyond = false;
  }

  // One that was unplugged holds no key any more.
  listenTo() {
    if (!this.isOpen) return;
    const inputs = [...this.access.inputs.values()].filter((input) => input.state !== "disconnected");
    for (const input of this.inputs) if (!inputs.includes(input)) this.forget(input);
    for (const input of inputs) input.onmidimessage = (message) => this.hear(input, message);
    this.inputs = inputs;
    const names = inputs.map((input) => input.name || "a MIDI keyboard").join(", ");
    this.tellSource(names || "No MIDI keyboard is connected");
  }

  // Some systems lend a keyboard to one program at a time.
  forget(input) {
    this.pedal(holderOf(input), false, performance.now());
    this.liftKeys(holderOf(input));
    input.onmidimessage = null;
    if (input.close) input.close();
  }

  hear(input, { data, timeStamp: told }) {
    const [status, number, value] = data;
    const now = performance.now();
    const timeStamp = Math.abs(told - now) < OTHER_CLOCK_MS ? told : now;
    const kind = status & 0xf0;
    const holder = holderOf(input);
    if (kind === 0x90 && value) this.down(holder, number, value, timeStamp);
    else if (kind === 0x90 || kind === 0x80) this.up(holder, number, timeStamp);
    else if (kind === 0xb0 && number === PEDAL) this.pedal(holder, value >= HALF_PEDAL, timeStamp);
  }

  // ---- letters and fingers ----------------------------------------------------------------------

  listen() {
    document.addEventListener("keydown", (event) => this.letterDown(event), true);
    document.addEventListener("keyup", (event) => this.letterUp(event), true);
    window.addEventListener("blur", () => this.isOpen && this.blur());
    window.addEventListener("beforeunload", (event) => {
      if (!this.isUnused) return;
      event.preventDefault(); // the browser asks whether to leave it
      event.returnValue = true; // what older ones go by
    });
    this.useNode.addEventListener("click", () => this.send());
    this.againNode.addEventListener("click", () => {
      this.focus();
      this.startOver();
    });
    this.cancelNode.addEventListener("click", () => {
      this.close();
      this.roll.left();
    });
    this.lowerNode.addEventListener("click", () => this.shift(-12));
    this.higherNode.addEventListener("click", () => this.shift(12));
    this.keysNode.addEventListener("pointerdown", (event) => this.fingerDown(event));
    document.addEventListener("pointermove", (event) => this.finger(event));
    for (const end of ["pointerup", "pointercancel"])
      document.addEventListener(end, (event) => this.fingerUp(event));
    new ResizeObserver(() => this.isOpen && this.layOut()).observe(this.keysNode);
    new ResizeObserver(() => this.isOpen && this.roll.laidOut()).observe(this.root);
  }

  letterDown(event) {
    if (!this.isOpen || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.(TYPED)) return;
    if (event.code === "Space" && event.target.closest?.(PRESSED)) return;
    const pitch = LETTERS.includes(event.code) ? this.base + LETTERS.indexOf(event.code) : null;
    if (pitch === null && !(event.code in OCTAVES) && event.code !== "Space") return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (event.repeat) return;
    if (event.code === "Space") this.pedal("space", true, event.timeStamp);
    else if (pitch === null) this.shift(OCTAVES[event.code]);
    else this.down("letter" + event.code, pitch, FIRM, event.timeStamp);
  }

  letterUp(event) {
    if (!this.isOpen) return;
    if (event.code === "Space" && this.feet.has("space")) this.pedal("space", false, event.timeStamp);
    this.liftKeys("letter" + event.code, event.timeStamp);
  }

  fingerDown(event) {
    if (event.button) return; // not the first one of a mouse
    event.preventDefault(); // the keys keep the focus
    this.focus();
    if (event.target.hasPointerCapture?.(event.pointerId))
      event.target.releasePointerCapture(event.pointerId);
    this.fingers.set(event.pointerId, null);
    this.finger(event);
  }

  // A finger that is drawn across the keys strikes one after the other.
  finger(event) {
    if (!this.fingers.has(event.pointerId)) return;
    const under = document.elementFromPoint(event.clientX, event.clientY);
    const key = under && this.keysNode.contains(under) ? under.closest(".mg-key") : null;
    const pitch = key ? Number(key.dataset.pitch) : null;
    const before = this.fingers.get(event.pointerId);
    if (pitch === before) return;
    if (before !== null) this.up("finger" + event.pointerId, before, event.timeStamp);
    this.fingers.set(event.pointerId, pitch);
    if (pitch === null) return;
    const box = key.getBoundingClientRect();
    const share = Math.max(0, Math.min(1, (event.clientY - box.top) / box.height));
    const velocity = Math.round(SOFT + (LOUD - SOFT) * share);
    this.down("finger" + event.pointerId, pitch, velocity, event.timeStamp);
  }

  fingerUp(event) {
    const pitch = this.fingers.get(event.pointerId);
    this.fingers.delete(event.pointerId);
    if (pitch != null) this.up("finger" + event.pointerId, pitch, event.timeStamp);
  }
}
