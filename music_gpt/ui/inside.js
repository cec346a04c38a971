// What the network expected at an event, and what it looked at -> bars, fields, and a glow on the roll.
// The value is described in explain.py. A note is pressed in the roll; arrows lead on from event to event.

const ALL = "all"; // the mean of all heads
const HOW = "Press a note in the roll: you see what the network expected in its place, and what it looked at.";
const BUSY_NOW = "Music is being composed; what is inside can be seen when it has come, or is stopped.";
const MOST_LOOKED = 6; // events that are told of those that were looked at
const FIELD = { width: 56, height: 22, bins: 28 };

function percent(share) {
  return share < 0.001 ? "below 0.1 %" : (100 * share).toFixed(share < 0.1 ? 1 : 0) + " %";
}

class InsideView {
  constructor(element, props, send) {
    this.props = props;
    this.send = send;
    this.root = element.querySelector(".mg-inside");
    this.wanted = {};
    this.head = ALL;
    this.value = {};
    for (const name of ["fold", "body", "told", "found", "said", "chance"])
      this[name] = this.root.querySelector(".mi-" + name);
    for (const name of ["expected", "depths", "heads", "looked", "copy"])
      this[name] = this.root.querySelector(".mi-" + name);
    this.fold.addEventListener("click", () => this.toggle());
    this.steps = [...this.root.querySelectorAll(".mi-step")];
    for (const node of this.steps) node.addEventListener("click", () => this.step(node.dataset.to));
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.root.musicGptInside = {
      asked: () => this.wanted,
      state: () => ({ open: this.isOpen, head: this.head, value: this.value, shown: !this.found.hidden }),
    };
  }

  get roll() {
    return document.querySelector("#roll .mg-roll").musicGptRoll;
  }

  get isOpen() {
    return !this.body.hidden;
  }

  // ---- what is asked ----------------------------------------------------------------------------

  toggle() {
    this.body.hidden = this.isOpen;
    this.fold.setAttribute("aria-expanded", String(this.isOpen));
    if (!this.isOpen) return this.roll.look(null);
    this.roll.look({
      picked: (note) => this.ask({ seconds: note.start, pitch: note.pitch }),
      shown: () => this.begin(),
      drawn: (picture) => this.showCopy(picture),
    });
    this.begin();
  }

  // Other music is in view: its first note, or its first new one, to begin with.
  begin() {
    this.found.hidden = true;
    this.value = {};
    this.aim = undefined;
    const { busy, end, seconds } = this.roll.inView();
    this.told.textContent = busy ? BUSY_NOW : HOW;
    if (!busy && end > 0) this.ask({ seconds });
  }

  // The events beside this one, and the notes.
  placeOf(to) {
    const { noteBefore, noteAfter } = this.value;
    const place = this.aim ?? this.value.place; // of quick presses each one counts
    return { before: place - 1, after: place + 1, noteBefore, noteAfter }[to];
  }

  isThere(place) {
    return place >= 1 && place <= this.value.places;
  }

  step(to) {
    const place = this.placeOf(to);
    if (this.isThere(place)) this.ask({ place });
  }

  ask(event) {
    const { version, take, busy } = this.roll.inView();
    if (busy) return;
    this.wanted = { version, take, ...event };
    this.aim = event.place;
    this.send();
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !event.target.closest(".mi-step, .mi-heads")) return;
    event.preventDefault();
    if (event.target.closest(".mi-heads")) this.nextHead(step);
    else this.step(step < 0 ? "noteBefore" : "noteAfter");
  }

  // ---- what is shown ----------------------------------------------------------------------------

  update() {
    const value = JSON.parse(JSON.stringify(this.props.value || {}));
    const { version, take } = this.roll.inView();
    if (!this.isOpen) return;
    this.told.textContent = value.fault || HOW;
    if (value.fault) this.aim = undefined; // one goes on from what is shown
    if (value.version !== version || value.take !== take) return; // it came too late
    this.value = value;
    if (value.place === this.aim) this.aim = undefined;
    this.events = value.events.split(";").map(readEvent);
    this.weights = value.heads.map((block) => block.map((text) => this.readWeights(text)));
    this.found.hidden = false;
    this.showEvent();
    this.showExpected();
    this.showDepths();
    this.showHeads();
    this.showLooked();
  }

  // Shares of all events, from `event,thousandths;`.
  readWeights(text) {
    const shares = new Float32Array(this.events.length);
    for (const item of text.split(";")) {
      const [event, thousandths] = item.split(",").map(Number);
      if (item) shares[event] = thousandths / 1000;
    }
    return shares;
  }

  showEvent() {
    const { said, seconds, place, places, chance, rank, of, expected, drawn } = this.value;
    this.said.querySelector("b").textContent = said;
    this.said.querySelector("span").textContent = `at ${seconds.toFixed(2)} s · event ${place} of ${places}`;
    const order = rank === 1 ? "its first choice" : `choice ${rank} of the ${of} events there are`;
    const came = expected.find((row) => row.came);
    const left = came.after === 0 ? "; it is left out of what is drawn" : "";
    this.chance.textContent = `The network gave it ${percent(chance)}: ${order}${left}.${drawn && " " + drawn}`;
    for (const node of this.steps)
      node.setAttribute("aria-disabled", String(!this.isThere(this.placeOf(node.dataset.to))));
  }

  showExpected() {
    const rows = this.value.expected;
    this.expected.replaceChildren(
      ...rows.map(({ name, before, after, came }) =>
        after === null
          ? bar(name, percent(before), [before], came)
          : bar(name, `${percent(before)} → ${after ? percent(after) : "none"}`, [before, after], came)
      )
    );
  }

  showDepths() {
    const { depths } = this.value;
    const names = depths.map((_, i) => {
      if (!i) return "embedding";
      return (i % 2 ? "attention " : "feed-forward ") + Math.ceil(i / 2);
    });
    this.depths.replaceChildren(
      ...depths.map(({ chance, guess }, i) =>
        bar(names[i], `${percent(chance)} · ${guess}`, [chance], i === depths.length - 1)
      )
    );
  }

  // ---- heads ------------------------------------------------------------------------------------

  get headNames() {
    return [ALL, ...this.weights.flatMap((block, b) => block.map((_, h) => `${b + 1}.${h + 1}`))];
  }

  sharesOf(name) {
    if (name !== ALL) {
      const [block, head] = name.split(".").map(Number);
      return this.weights[block - 1][head - 1];
    }
    const all = this.weights.flat();
    return this.events.map((_, i) => all.reduce((sum, shares) => sum + shares[i], 0) / all.length);
  }

  showHeads() {
    if (!this.headNames.includes(this.head)) this.head = ALL;
    const rows = this.weights.map((block, b) => {
      const row = document.createElement("div");
      row.append(label(`Block ${b + 1}`), ...block.map((_, h) => this.makeHead(`${b + 1}.${h + 1}`)));
      return row;
    });
    const first = document.createElement("div");
    first.append(label("Together"), this.makeHead(ALL));
    this.heads.replaceChildren(first, ...rows);
  }

  makeHead(name) {
    const node = document.createElement("button");
    node.type = "button";
    node.role = "radio";
    node.title = headWords(name);
    node.dataset.head = name;
    node.setAttribute("aria-label", headWords(name));
    node.setAttribute("aria-checked", String(name === this.head));
    node.tabIndex = name === this.head ? 0 : -1;
    node.append(field(this.sharesOf(name)));
    node.addEventListener("click", () => this.choose(name));
    return node;
  }

  nextHead(step) {
    const names = this.headNames;
    this.choose(names[(names.indexOf(this.head) + step + names.length) % names.length]);
    this.heads.querySelector(`[data-head="${this.head}"]`).focus();
  }

  choose(name) {
    this.head = name;
    for (const node of this.heads.querySelectorAll("button")) {
      node.setAttribute("aria-checked", String(node.dataset.head === name));
      node.tabIndex = node.dataset.head === name ? 0 : -1;
    }
    this.showLooked();
  }

  // The events that the chosen head looked at most, in words and on the roll.
  showLooked() {
    const shares = this.sharesOf(this.head);
    const most = Math.max(...shares, 1e-9);
    const glowing = this.events.map((event, i) => ({ ...event, strength: Math.sqrt(shares[i] / most) }));
    const chosen = readEvent(this.value.chosen);
    this.copy.setAttribute("aria-label", `${headWords(this.head)}: what was looked at`);
    this.roll.glow({ events: glowing.filter((event) => event.strength > 0.07), chosen });
    const order = [...shares.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, MOST_LOOKED);
    this.looked.replaceChildren(
      ...order.filter((i) => shares[i] > 0).map((i) => {
        const ago = this.value.seconds - happens(this.events[i]);
        const when = this.events[i].kind === "s" ? "" : ` · ${ago < 0.005 ? "now" : ago.toFixed(2) + " s ago"}`;
        return bar(this.events[i].words + when, percent(shares[i]), [shares[i]], false);
      })
    );
  }

  // Where the window is narrow the roll is far above: what glows there is seen beside the heads, too.
  showCopy(picture) {
    if (!this.copy.clientWidth) return;
    this.copy.width = picture.width;
    this.copy.height = picture.height;
    this.copy.getContext("2d").drawImage(picture, 0, 0);
  }
}

// ---- pieces of it -------------------------------------------------------------------------------

function readEvent(text) {
  const [kind, start, end, pitch, words] = text.split(",");
  return { kind, start: start / 1000, end: end / 1000, pitch: Number(pitch), words };
}

function headWords(head) {
  return head === ALL ? "All heads together" : "Block " + head.replace(".", ", head ");
}

const happens = (event) => (event.kind === "r" ? event.end : event.start);

function label(text) {
  const node = document.createElement("span");
  node.textContent = text;
  return node;
}

// A line of words over its bars: the first is pale where there are two.
function bar(name, told, lengths, marked) {
  const node = document.createElement("li");
  node.dataset.marked = marked;
  node.append(label(name), label(told));
  for (const length of lengths) {
    const line = document.createElement("i");
    line.style.width = (100 * length).toFixed(1) + "%";
    node.append(line);
  }
  return node;
}

// Shares of the events before -> a strip: the latest at its right, the distance as its logarithm.
function field(shares) {
  const { width, height, bins } = FIELD;
  const sums = new Float32Array(bins);
  const far = Math.log(shares.length + 1);
  shares.forEach((share, i) => {
    const bin = Math.floor((1 - Math.log(shares.length - i) / far) * (bins - 0.001));
    sums[Math.min(bins - 1, Math.max(0, bin))] += share;
  });
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  sums.forEach((sum, i) => {
    const tall = Math.sqrt(sum) * height;
    const column = document.createElementNS(space, "rect");
    const size = { x: (i * width) / bins, y: height - tall, width: width / bins - 0.4, height: tall };
    for (const [name, number] of Object.entries(size)) column.setAttribute(name, number.toFixed(2));
    picture.append(column);
  });
  return picture;
}
