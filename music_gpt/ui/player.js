// Notes that may still be growing -> sound: a sampled piano on the AudioContext's own clock.
// It knows seconds, pitches and velocities, and nothing of the page. The recipe is that of
// piano_bank/README.md, so what is heard here is what the sound file holds.

const AHEAD = 0.5; // seconds that are scheduled before they are heard
const AHEAD_HIDDEN = 1.8; // a tab in the background is woken once a second only
const TICK_MS = 60;
// what bank.json says of loudness, for a page that does not get it
const PLAIN = { velocity_offset: 0.092857, velocity_slope: 0.00714286, gain_db: -6, limiter_threshold: 0.7 };
const HALF_KEYBOARD = 43.5; // semitones from the middle of the piano to its last key
const LIMITED = 16; // the limiter takes sums up to so many times full scale
const LEAD = 0.9; // seconds of music that have to be there before a wait ends

class PianoBank {
  // Fetches the recordings early; decoding needs no gesture when it is done off-line.
  constructor(url) {
    this.url = url;
    this.zones = [];
    this.card = null;
    this.state = "waiting";
    this.ready = null;
  }

  load() {
    if (!this.ready) this.ready = this.fetchAll();
    return this.ready;
  }

  async fetchAll() {
    if (!this.url) {
      this.state = "absent";
      return;
    }
    try {
      const answer = await fetch(this.url + "bank.json");
      if (!answer.ok) throw new Error("bank.json: " + answer.status);
      const card = await answer.json();
      // decoded at their own rate, so that the loop points stay exact
      const decoder = new OfflineAudioContext(1, 1, card.sample_rate);
      const buffers = await Promise.all(card.zones.map((zone) => this.decode(decoder, zone)));
      this.zones = card.zones.map((zone, i) => ({ ...zone, buffer: buffers[i] }));
      this.card = card;
      this.state = "ready";
    } catch (error) {
      // the page plays on with plain oscillators
      this.zones = [];
      this.state = "failed";
      this.why = String(error);
    }
  }

  async decode(decoder, zone) {
    const answer = await fetch(this.url + encodeURIComponent(zone.file));
    if (!answer.ok) throw new Error(zone.file + ": " + answer.status);
    return decoder.decodeAudioData(await answer.arrayBuffer());
  }

  find(pitch) {
    return this.zones.find((zone) => pitch >= zone.low && pitch <= zone.high);
  }

  // Amplitude of a velocity before the gain of its zone.
  level(velocity) {
    const { velocity_offset: offset, velocity_slope: slope, gain_db } = this.card || PLAIN;
    return (offset + slope * velocity) ** 2 * 10 ** (gain_db / 20);
  }
}

// Bends peaks above the threshold so that they stay below 1, and touches nothing below it.
function limiterCurve(threshold) {
  const n = 1 << 15;
  const bend = (x) => {
    const over = Math.max(0, Math.abs(x) - threshold) / (1 - threshold);
    return over ? Math.sign(x) * (threshold + ((1 - threshold) * over) / (1 + over)) : x;
  };
  return Float32Array.from({ length: 2 * n + 1 }, (_, i) => bend((i / n - 1) * LIMITED));
}

class PianoPlayer {
  // `music()` says what there is: {closed, open, front, end, growing}; closed and open are arrays
  // of {start, end, pitch, velocity, key}.
  constructor(bank, music) {
    this.bank = bank;
    this.music = music;
    this.context = null;
    this.playing = false;
    this.waiting = false;
    this.offset = 0;
    this.startedAt = 0;
    this.voices = new Map();
    this.fresh = true;
    this.timer = 0;
    this.changed = () => {};
  }

  // Has to be called from within a click or a key press the first time.
  unlock() {
    if (!this.context) this.build();
    if (this.context.state === "suspended") this.context.resume();
    this.bank.load();
  }

  build() {
    this.context = new AudioContext({ latencyHint: "interactive" });
    this.master = this.context.createGain();
    this.master.gain.value = 1 / LIMITED;
    this.limiter = this.context.createWaveShaper();
    this.limiter.curve = limiterCurve(PLAIN.limiter_threshold);
    this.meter = this.context.createAnalyser();
    this.meter.fftSize = 2048;
    this.master.connect(this.limiter).connect(this.meter).connect(this.context.destination);
    const overtones = new Float32Array([0, 1, 0.45, 0.22, 0.16, 0.09, 0.05, 0.03]);
    this.wave = this.context.createPeriodicWave(new Float32Array(8), overtones);
  }

  get position() {
    if (!this.playing || this.waiting || !this.context) return this.offset;
    return this.offset + Math.max(0, this.context.currentTime - this.startedAt);
  }

  loudness() {
    if (!this.meter) return 0;
    const block = new Float32Array(this.meter.fftSize);
    this.meter.getFloatTimeDomainData(block);
    let sum = 0;
    for (const x of block) sum += x * x;
    return Math.sqrt(sum / block.length);
  }

  play() {
    this.unlock();
    const music = this.music();
    if (!music.growing && this.offset >= music.end - 0.05) this.offset = 0;
    this.playing = true;
    this.waiting = false;
    this.restart();
    if (!this.timer) this.timer = setInterval(() => this.tick(), TICK_MS);
    this.tick();
    this.changed();
  }

  pause() {
    this.offset = this.position;
    this.playing = false;
    this.waiting = false;
    clearInterval(this.timer);
    this.timer = 0;
    this.silence();
    this.changed();
  }

  seek(seconds) {
    this.offset = Math.max(0, Math.min(seconds, this.music().end));
    if (this.playing) this.restart();
    this.changed();
  }

  // Other music at the same place: another take, another prompt.
  swap() {
    if (this.playing) {
      this.offset = this.position;
      this.restart();
    }
  }

  restart() {
    this.silence();
    this.startedAt = this.context.currentTime + 0.03;
    this.fresh = true;
  }

  silence() {
    for (const voice of this.voices.values()) this.release(voice, this.context.currentTime, 0.12);
    this.voices.clear();
  }

  tick() {
    if (!this.playing) return;
    const music = this.music();
    const now = this.position;
    if (this.hold(music, now)) return;
    const until = now + (document.hidden ? AHEAD_HIDDEN : AHEAD);
    for (const note of music.closed) this.consider(note, now, until, note.end);
    for (const note of music.open) this.consider(note, now, until, Infinity);
    this.fresh = false;
    this.letGo(music);
    if (!music.growing && now >= music.end + 0.2) this.finish(music.end);
  }

  // While music is being composed the playhead never overtakes it.
  hold(music, now) {
    if (this.waiting) {
      if (music.growing && music.front - this.offset < LEAD) return true;
      this.waiting = false;
      this.startedAt = this.context.currentTime;
      return false;
    }
    if (!music.growing || now < music.front - 0.1) return false;
    this.offset = now;
    this.waiting = true;
    this.changed();
    return true;
  }

  consider(note, now, until, end) {
    if (note.start >= until || this.voices.has(note.key)) return;
    const late = now - note.start;
    if (late > 0.15 && !(this.fresh && end > now + 0.05)) return;
    this.strike(note, Math.max(0, late), end);
  }

  // A key that is down now: it sounds until it is lifted.
  press(key, pitch, velocity) {
    this.lift(key);
    this.strike({ start: -Infinity, pitch, velocity, key }, 0, Infinity);
  }

  lift(key) {
    const voice = this.voices.get(key);
    if (!voice) return;
    this.voices.delete(key);
    this.release(voice, this.context.currentTime, voice.damp);
  }

  // All voices whose keys begin so, but for some.
  liftAll(start, kept = []) {
    for (const key of [...this.voices.keys()])
      if (key.startsWith(start) && !kept.includes(key)) this.lift(key);
  }

  when(seconds) {
    return this.startedAt + (seconds - this.offset);
  }

  strike(note, skip, end) {
    const at = Math.max(this.context.currentTime, this.when(note.start + skip));
    const gain = this.context.createGain();
    const zone = this.bank.find(note.pitch);
    const voice = zone
      ? this.strikeSample(note, zone, gain, at, skip)
      : this.strikeWave(note, gain, at, skip);
    voice.key = note.key;
    voice.open = end === Infinity;
    voice.source.onended = () => voice.tail.disconnect();
    this.voices.set(note.key, voice);
    if (!voice.open) this.release(voice, this.when(end), voice.damp);
  }

  strikeSample(note, zone, gain, at, skip) {
    const { shelf_db, pan_width, pan_center } = this.bank.card;
    const hold = zone.hold_seconds; // from here on the recording fades
    const source = this.context.createBufferSource();
    const rate = 2 ** ((note.pitch - zone.root) / 12 - zone.tune_cents / 1200);
    source.buffer = zone.buffer;
    source.playbackRate.value = rate;
    source.loop = true;
    source.loopStart = zone.loop_start / zone.buffer.sampleRate;
    source.loopEnd = zone.loop_end / zone.buffer.sampleRate;
    const shelf = this.context.createBiquadFilter(); // soft notes are darker
    shelf.type = "highshelf";
    shelf.frequency.value = zone.shelf_hz * rate;
    shelf.gain.value = shelf_db * (1 - note.velocity / 127);
    const pan = this.context.createStereoPanner();
    pan.pan.value = pan_width * Math.max(-1, Math.min(1, (note.pitch - pan_center) / HALF_KEYBOARD));
    const faded = Math.max(0, skip - hold) * zone.decay_db_per_second;
    const peak = this.bank.level(note.velocity) * 10 ** ((zone.gain_db - faded) / 20);
    gain.gain.setValueAtTime(skip ? 0 : peak, at);
    if (skip) gain.gain.linearRampToValueAtTime(peak, at + 0.02);
    const fade = 8.686 / zone.decay_db_per_second; // time constant of so many dB a second
    gain.gain.setTargetAtTime(0, at + Math.max(0.02, hold - skip), fade);
    source.connect(shelf).connect(gain).connect(pan).connect(this.master);
    source.start(at, Math.min(skip * rate, source.loopStart));
    return { source, gain, tail: pan, damp: zone.release_seconds };
  }

  strikeWave(note, gain, at, skip) {
    const source = this.context.createOscillator();
    source.setPeriodicWave(this.wave);
    source.frequency.value = 440 * 2 ** ((note.pitch - 69) / 12);
    const fade = 0.25 + 1.6 * 2 ** ((48 - note.pitch) / 18); // low strings ring longer
    const peak = 0.5 * this.bank.level(note.velocity) * Math.exp(-skip / fade);
    gain.gain.setValueAtTime(0, at);
    gain.gain.linearRampToValueAtTime(peak, at + 0.006);
    gain.gain.setTargetAtTime(0, at + 0.006, fade);
    source.connect(gain).connect(this.master);
    source.start(at);
    return { source, gain, tail: gain, damp: 0.3 };
  }

  // Fades a voice by 60 dB within `seconds`.
  release(voice, at, seconds) {
    const from = Math.max(this.context.currentTime, at);
    const fade = voice.gain.gain;
    if (fade.cancelAndHoldAtTime) fade.cancelAndHoldAtTime(from);
    else fade.cancelScheduledValues(from);
    fade.setTargetAtTime(0, from, seconds / 6.9);
    voice.source.stop(from + 1.2 * seconds);
  }

  // A key that was still down when it was struck here is released once its end is known.
  letGo(music) {
    const waiting = [...this.voices.values()].filter((voice) => voice.open);
    if (waiting.length) {
      const ends = new Map(music.closed.map((note) => [note.key, note.end]));
      for (const voice of waiting) {
        if (!ends.has(voice.key)) continue;
        voice.open = false;
        this.release(voice, this.when(ends.get(voice.key)), voice.damp);
      }
    }
  }

  finish(end) {
    this.pause();
    this.offset = end;
    this.changed();
  }
}
