// Keys and a pedal as they move -> notes that can be seen at once, and a MIDI file of the same.
// Times come in milliseconds of one clock, and count from the first key on.

const MY_PLAYING = "My playing"; // the name of its file
const PEDAL = 64; // the controller of the sustain pedal
const UP = 0; // its values
const DOWN = 127;
const BREAK_MS = 1000;

class Recording {
  constructor() {
    this.began = null;
    this.last = 0;
    this.events = []; // [milliseconds, status, number, value]
    this.closed = [];
    this.sounding = new Map(); // by pitch; `held` tells a key from a string that the pedal holds
    this.pedal = false;
    this.rests = false; // the clock stands still until the next key
    this.count = 0;
  }

  get seconds() {
    return this.last / 1000;
  }

  // Two devices may tell of their keys in another order than they were pressed.
  time(stamp) {
    if (this.began === null) this.began = stamp;
    if (this.rests) this.began = Math.max(this.began, stamp - this.last - BREAK_MS);
    this.rests = false;
    this.last = Math.max(this.last, Math.round(stamp - this.began));
    return this.last;
  }

  // A break is none in the music: the next key follows a second after what was last.
  goOn() {
    this.rests = this.began !== null;
  }

  down(pitch, velocity, stamp) {
    const isFirst = this.began === null;
    const at = this.time(stamp);
    if (isFirst && this.pedal) this.events.push([at, 0xb0, PEDAL, DOWN]);
    const before = this.sounding.get(pitch);
    if (before && before.held) this.events.push([at, 0x80, pitch, 0]);
    this.close(pitch, at);
    this.events.push([at, 0x90, pitch, velocity]);
    const key = "played" + this.count++;
    this.sounding.set(pitch, { start: at / 1000, pitch, velocity, key, held: true });
  }

  up(pitch, stamp) {
    const note = this.sounding.get(pitch);
    if (!note || !note.held) return;
    const at = this.time(stamp);
    this.events.push([at, 0x80, pitch, 0]);
    note.held = false;
    if (!this.pedal) this.close(pitch, at);
  }

  press(isDown, stamp) {
    if (isDown === this.pedal) return;
    this.pedal = isDown;
    if (this.began === null) return; // it is told with the first key
    const at = this.time(stamp);
    this.events.push([at, 0xb0, PEDAL, isDown ? DOWN : UP]);
    if (isDown) return;
    for (const [pitch, note] of this.sounding) if (!note.held) this.close(pitch, at);
  }

  close(pitch, at) {
    const note = this.sounding.get(pitch);
    if (!note) return;
    this.sounding.delete(pitch);
    this.closed.push({ ...note, end: Math.max(note.start + 0.001, at / 1000) });
  }

  // Seconds since the first key, also in a rest.
  elapsed(stamp) {
    if (this.began === null || this.rests) return this.seconds;
    return Math.max(this.last, stamp - this.began) / 1000;
  }

  // What still sounds, up to now.
  open(stamp) {
    const end = this.elapsed(stamp);
    return [...this.sounding.values()].map((note) => ({ ...note, end }));
  }

  // A file of one track with a tick for each millisecond; what is still held ends now.
  midi(stamp) {
    const now = Math.round(1000 * this.elapsed(stamp));
    const held = [...this.sounding.values()].filter((note) => note.held);
    const ends = held.map((note) => [now, 0x80, note.pitch, 0]);
    if (this.pedal) ends.push([now, 0xb0, PEDAL, UP]);
    const track = [0, 0xff, 0x51, 3, 0x0f, 0x42, 0x40, 0, 0xc0, 0]; // a quarter is a second; a piano
    let before = 0;
    for (const [at, ...bytes] of [...this.events, ...ends]) {
      track.push(...variableLength(at - before), ...bytes);
      before = at;
    }
    track.push(0, 0xff, 0x2f, 0);
    const head = [...ascii("MThd"), ...bigEndian(6, 4), 0, 0, 0, 1, ...bigEndian(1000, 2)];
    return new Uint8Array([...head, ...ascii("MTrk"), ...bigEndian(track.length, 4), ...track]);
  }
}

function ascii(text) {
  return [...text].map((letter) => letter.charCodeAt(0));
}

function bigEndian(number, width) {
  return Array.from({ length: width }, (_, i) => (number >>> (8 * (width - 1 - i))) & 0xff);
}

// Seven bits in each byte, the most significant first; all but the last have the eighth.
function variableLength(number) {
  const bytes = [number & 0x7f];
  while ((number = Math.floor(number / 128))) bytes.unshift((number & 0x7f) | 0x80);
  return bytes;
}
