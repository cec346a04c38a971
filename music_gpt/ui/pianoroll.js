// The roll's value -> tabs, handles and transport, and what a person does with them.
// The value is described in roll_value.py; times are in seconds inside, in milliseconds in its texts.

// Reads `start,duration,pitch,velocity;...`; a text that only grew is read on from where it ended.
class NoteText {
  constructor(owner) {
    this.owner = owner;
    this.text = "";
    this.notes = [];
  }

  read(text) {
    if (!text.startsWith(this.text)) {
      this.text = "";
      this.notes = [];
    }
    for (const item of text.slice(this.text.length).split(";")) {
      if (!item) continue;
      const [start, duration, pitch, velocity] = item.split(",").map(Number);
      const key = this.owner + ":" + start + ":" + pitch;
      this.notes.push({ start: start / 1000, end: (start + duration) / 1000, pitch, velocity, key });
    }
    this.text = text;
    return this.notes;
  }
}

class PianoRoll extends LookedRoll {
  constructor(element, props, send) {
    super(props);
    this.send = send; // asks the server for other music, by the name of an event:
    this.wants = ""; // the earlier, the later, to continue the take that is shown, or to change
    this.root = element.querySelector(".mg-roll");
    this.told = []; // what each take shares with the training music
    this.tab = 0; // 0 is the prompt, 1 and up are the takes
    this.value = {};
    this.texts = new Map();
    this.view = null; // {from, seconds} when zoomed in
    this.follow = false; // whether music is awaited, which starts to play by itself
    this.lit = "";
    const bank = props.bank_url ? this.address(props.bank_url) : "";
    this.player = new PianoPlayer(new PianoBank(bank), () => this.music());
    this.player.changed = () => {
      this.showTransport();
      this.dirty = true;
    };
    this.keyboard = this.makeKeyboard();
    this.find();
    this.sharedNode.hidden = !props.compares;
    this.speedNode.min = props.slowest;
    this.speedNode.max = props.fastest;
    this.listen();
    this.root.musicGptRoll = this.door();
    this.update();
    // early, but not before the page is there; a machine that is never idle loads it, too
    (window.requestIdleCallback || setTimeout)(() => this.player.bank.load(), { timeout: 2000 });
    requestAnimationFrame(() => this.frame());
  }

  // What the page around it and the tests may use.
  door() {
    return {
      selection: () => ({
        ...this.held,
        ...this.change,
        given: this.value.given,
        version: this.value.version,
        take: this.take,
        tab: this.tab,
        candidates: this.candidates,
        wants: this.wants,
      }),
      expect: () => this.expect(),
      play: () => this.sitDown(),
      look: (looking) => this.look(looking),
      glow: (glow) => this.showGlow(glow),
      placeOf: (number) => this.placeOf(this.now.closed[number]),
      inView: () => ({
        version: this.value.version,
        take: this.tab - 1,
        busy: this.busy || this.keyboard.isOpen,
        seconds: this.tab ? this.value.seam : this.player.position || this.now.end / 2,
        end: this.now.end,
      }),
      making: () => (this.statusNode.textContent = "Making the file …"),
      made: () => (this.statusNode.textContent = this.value.status || ""),
      save: (file) => this.save(file),
      tell: (told) => this.tell(told),
      state: () => ({
        state: this.value.state,
        version: this.value.version,
        tab: this.tab,
        playing: this.player.playing,
        waiting: this.player.waiting,
        position: this.player.position,
        clock: this.player.context ? this.player.context.currentTime : 0,
        loudness: this.player.loudness(),
        bank: this.player.bank.state,
        notes: this.now.closed.length + this.now.open.length,
        newNotes: (this.value.takes || []).map((_, i) => this.readTake(i).closed.length),
        end: this.now.end,
        seam: this.value.seam,
        front: this.value.front,
        selection: { ...this.held },
        marking: this.marking,
        until: this.value.until,
        seed: (this.value.takes || []).map((take) => take.seed)[this.take],
        name: this.value.name,
        transpose: this.value.transpose,
        speed: this.value.speed,
        place: this.placeNode.textContent,
        played: this.keyboard.isOpen ? this.keyboard.recording.count : null,
      }),
    };
  }

  address(path) {
    const root = (window.gradio_config && window.gradio_config.root) || "";
    const base = new URL(root + "/", document.baseURI);
    // the page may be open under another name of the same server
    return new URL(base.pathname.replace(/\/*$/, "/") + path, location.origin).href;
  }

  find() {
    for (const name of ["title", "detail", "tabs", "stage", "notes", "live", "surface", "from"])
      this[name + "Node"] = this.root.querySelector(".mg-" + name);
    for (const name of ["to", "empty", "play", "back", "now", "total", "status", "out", "in"])
      this[name + "Node"] = this.root.querySelector(".mg-" + name);
    for (const name of ["seed", "spoken", "point", "seconds", "here", "shared", "kept"])
      this[name + "Node"] = this.root.querySelector(".mg-" + name);
    for (const name of ["continue", "history", "earlier", "later", "place"])
      this[name + "Node"] = this.root.querySelector(".mg-" + name);
    for (const name of ["change", "transpose", "speed", "keys"])
      this[name + "Node"] = this.root.querySelector(".mg-" + name);
    for (const name of ["redo", "mark", "first", "last", "ways"])
      this[name + "Node"] = this.root.querySelector(".mg-" + name);
  }

  // ---- what there is -------------------------------------------------------------------------

  get busy() {
    return this.follow || ["composing", "redoing"].includes(this.value.state);
  }

  get take() {
    return Math.max(0, this.tab - 1);
  }

  text(place, owner = place) {
    if (!this.texts.has(place)) this.texts.set(place, new NoteText(owner));
    return this.texts.get(place);
  }

  // An open note keeps the name that it will have when it is closed.
  readTake(i) {
    const take = this.value.takes[i];
    const kept = this.text("kept" + i, "kept").read(take.kept);
    const ringing = this.text("ringing" + i, "kept").read(take.ringing);
    return {
      kept: ringing.length ? kept.concat(ringing) : kept,
      closed: this.text("closed" + i, "take" + i).read(take.notes),
      open: this.text("open" + i, "take" + i).read(take.open),
    };
  }

  music() {
    return this.now;
  }

  // Everything that is drawn and heard for the chosen tab.
  collect() {
    if (this.keyboard.isOpen) return this.played();
    const value = this.value;
    if (!this.tab) {
      const notes = this.text("prompt").read(value.prompt || "");
      const end = value.promptSeconds || 0;
      return { closed: notes, fresh: [], kept: notes, open: [], front: end, end, growing: false };
    }
    const { kept, closed: fresh, open } = this.readTake(this.take);
    const growing = value.state === "composing";
    const closed = kept.concat(fresh);
    const last = closed.reduce((end, note) => Math.max(end, note.end), value.seam);
    return {
      closed,
      kept,
      fresh,
      open,
      growing,
      front: value.front,
      end: growing ? value.front : last,
    };
  }

  // Seconds that the roll shows when it is not zoomed.
  get span() {
    const value = this.value;
    if (this.keyboard.isOpen) return this.playedSpan;
    const asked = this.tab && value.state === "composing" ? value.seam + value.asked : 0;
    return Math.max(SHORTEST_SPAN, asked, this.now.end);
  }

  update() {
    const before = this.value;
    const value = JSON.parse(JSON.stringify(this.props.value || {}));
    const wasPlaying = this.keyboard.isOpen;
    if (value.version !== before.version) this.keyboard.leave(value.name === MY_PLAYING);
    this.value = value;
    if (value.version !== before.version) this.begin(value, before);
    else if (value.state !== before.state) this.speak(value);
    if (value.state !== "redoing") this.follow = false;
    this.now = this.collect();
    this.root.dataset.state = value.state || "empty";
    this.showName();
    this.statusNode.textContent = value.status || "";
    if (value.answer && value.answer !== before.answer) this.answer(value.status);
    if (value.version !== before.version || value.answer !== before.answer) this.changeAnswered(before);
    if (wasPlaying && !this.keyboard.isOpen && this.keyboard.isUnused) this.answer(KEPT);
    this.showSeed();
    this.showPlace();
    this.showTabs();
    this.showTransport();
    const focused = document.activeElement === this.continueNode;
    this.showHandles();
    if (value.version !== before.version || value.state !== before.state) this.tellLooking();
    if (focused && this.continueNode.hidden) this.toNode.focus({ preventScroll: true }); // it goes on there
    this.dirty = true;
  }

  // What the page has to say to what was asked for.
  answer(sentence) {
    this.keyboard.refused(sentence);
    this.statusNode.textContent = this.spokenNode.textContent = sentence;
  }

  showName() {
    const played = { name: MY_PLAYING, detail: "Recorded from the first note on" };
    const isOpen = this.keyboard.isOpen;
    const { name = "", detail = "" } = isOpen ? played : this.value;
    const changes = isOpen ? [] : this.changeWords;
    this.titleNode.textContent = this.titleNode.title = name;
    this.detailNode.textContent = [detail, ...changes].filter(Boolean).join(" · ");
  }

  // Of all that was composed, which is shown. An arrow that leads nowhere keeps the focus.
  showPlace() {
    const { earlier = 0, later = 0 } = this.value;
    this.historyNode.hidden = !(earlier + later);
    this.earlierNode.setAttribute("aria-disabled", String(this.busy || !earlier));
    this.laterNode.setAttribute("aria-disabled", String(this.busy || !later));
    this.continueNode.setAttribute("aria-disabled", String(this.busy));
    this.placeNode.textContent = `${earlier + 1} / ${earlier + 1 + later}`;
  }

  ask(node, wants) {
    if (node.getAttribute("aria-disabled") === "true") return;
    this.wants = wants;
    this.send("input");
  }

  begin(value, before) {
    const here = this.placeIn(value, before);
    this.texts.clear();
    this.view = here && here.view;
    this.part = { start: value.start || 0, end: value.end || 0 };
    this.marking = false;
    this.told = [];
    this.tab = value.tab || 0;
    if (this.player.playing) this.player.pause();
    this.player.offset = here ? here.position : 0;
    this.speak(value);
    this.now = this.collect();
    if (this.follow && this.tab) this.part = { ...this.chosen };
    const usual = Math.max(0, this.part.end - (value.reach || 0));
    this.ownStart = Math.abs(this.part.start - usual) > 0.01; // what is given is rounded
    if (here && here.playing) this.player.play();
    if (!this.tab) return;
    this.player.offset = Math.max(0, value.seam - 2.5);
    if (this.follow) this.player.play();
  }

  speak(value) {
    const { earlier = 0, later = 0 } = value;
    const place = earlier + later ? `Music ${earlier + 1} of ${earlier + 1 + later}. ` : "";
    const done = place + "Composed. " + (value.status || "");
    const say = { composing: "Composing", redoing: "Composing the part anew", done };
    const prompt = place + [value.name, value.detail, ...this.changeWords].filter(Boolean).join(", ");
    this.spokenNode.textContent = say[value.state] || prompt;
  }

  // Compose was pressed: sound may start, now that a finger is on the button.
  expect() {
    this.chosen = { ...this.part };
    this.follow = true;
    this.player.unlock();
    this.showPlace();
    this.statusNode.textContent = "Waiting for the pianist …";
    this.spokenNode.textContent = "Waiting for the pianist";
    if (matchMedia("(max-width: 720px)").matches)
      this.root.scrollIntoView({ behavior: "smooth", block: "start" });
  }

  // ---- tabs, transport, handles ---------------------------------------------------------------

  showTabs() {
    const takes = this.value.takes || [];
    const labels = takes.length === 1 ? ["Continuation"] : takes.map((take) => take.label);
    const names = ["Prompt", ...labels];
    const old = [...this.tabsNode.children];
    if (old.map((n) => n.textContent).join() !== names.join())
      this.tabsNode.replaceChildren(...names.map((name, i) => this.makeTab(name, i)));
    [...this.tabsNode.children].forEach((node, i) => {
      node.setAttribute("aria-selected", String(i === this.tab));
      node.tabIndex = i === this.tab ? 0 : -1;
    });
    const chosen = this.tabsNode.children[this.tab];
    const middle = chosen ? chosen.offsetLeft + chosen.offsetWidth / 2 : 0;
    this.tabsNode.scrollLeft = middle - this.tabsNode.clientWidth / 2;
    this.fadeTabs();
  }

  // Tabs that have no room are pushed along; an edge that hides some of them fades.
  fadeTabs() {
    const { scrollLeft, clientWidth, scrollWidth } = this.tabsNode;
    this.tabsNode.dataset.before = scrollLeft > 1;
    this.tabsNode.dataset.after = scrollLeft + clientWidth < scrollWidth - 1;
  }

  makeTab(name, i) {
    const node = document.createElement("button");
    node.type = "button";
    node.className = "mg-tab";
    node.role = "tab";
    node.textContent = name;
    if (Number(name)) node.setAttribute("aria-label", "Variation " + name);
    node.addEventListener("click", () => this.choose(i));
    node.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const all = this.tabsNode.children;
      this.choose((i + step + all.length) % all.length);
      all[this.tab].focus();
    });
    return node;
  }

  choose(tab) {
    const between = this.tab && tab; // two takes share their time axis
    const playing = this.player.playing;
    if (!between && playing) this.player.pause();
    this.tab = tab;
    this.now = this.collect();
    if (between) this.player.swap();
    else this.player.offset = tab ? Math.max(0, this.value.seam - 2.5) : 0;
    if (!between && playing) this.player.play();
    this.view = null;
    this.showSeed();
    this.showTabs();
    this.showTransport();
    this.showHandles();
    this.tellLooking();
    this.dirty = true;
  }

  // Each take has a seed of its own: with one variation it gives that take again.
  showSeed() {
    const { seed, rank } = (this.tab && this.value.takes[this.take]) || {};
    const words = [rank, seed == null ? "" : "Seed " + seed];
    this.seedNode.textContent = words.filter(Boolean).join(" · ");
    this.keptNode.textContent = this.tab && this.value.until ? "Kept" : "Prompt";
    this.sharedNode.textContent = (this.tab && this.told[this.take]) || "";
  }

  // What the takes share with the training music comes later than they do.
  tell(told) {
    if (!told || told.version !== this.value.version) return;
    this.told = told.lines;
    this.showSeed();
  }

  save(file) {
    this.door().made();
    if (!file || !file.url) return;
    const link = document.createElement("a");
    link.href = file.url;
    link.download = file.orig_name || "";
    link.click();
  }

  showTransport() {
    const playing = this.player.playing;
    const silent = !this.now || !this.now.end;
    this.playNode.setAttribute("aria-pressed", String(playing));
    this.playNode.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.playNode.disabled = this.backNode.disabled = silent && !playing;
    this.emptyNode.hidden = this.value.state !== "empty";
    if (!this.emptyNode.hidden && !this.emptyNode.firstChild) {
      const line = document.createElement("strong");
      line.textContent = "A blank sheet";
      this.emptyNode.append(line, "Press Compose and the pianist starts from nothing, or drop a MIDI file here.");
    }
    this.showPosition();
  }

  showPosition() {
    const position = this.player.position;
    const end = this.now ? this.now.end : 0;
    const now = clock(Math.min(position, end));
    if (this.nowNode.textContent !== now) {
      this.nowNode.textContent = now;
      this.surfaceNode.setAttribute("aria-valuenow", position.toFixed(1));
      this.surfaceNode.setAttribute("aria-valuetext", now + " of " + clock(end));
    }
    this.hereNode.disabled = position < MIN_PART;
    const total = "/ " + clock(end);
    if (this.totalNode.textContent !== total) {
      this.totalNode.textContent = total;
      this.surfaceNode.setAttribute("aria-valuemax", end.toFixed(1));
    }
  }

  // ---- input ----------------------------------------------------------------------------------

  listen() {
    this.playNode.addEventListener("click", () => this.toggle());
    this.backNode.addEventListener("click", () => this.player.seek(0));
    this.outNode.addEventListener("click", () => this.zoom(2));
    this.inNode.addEventListener("click", () => this.zoom(0.5));
    this.earlierNode.addEventListener("click", () => this.ask(this.earlierNode, "earlier"));
    this.laterNode.addEventListener("click", () => this.ask(this.laterNode, "later"));
    this.continueNode.addEventListener("click", () => this.ask(this.continueNode, "continue"));
    this.tabsNode.addEventListener("scroll", () => this.fadeTabs());
    this.listenSurface();
    this.listenHandles();
    this.listenChange();
    this.listenDrop();
    document.addEventListener("keydown", (event) => this.spaceBar(event));
    new ResizeObserver(() => this.resize()).observe(this.stageNode);
    const repaint = () => ((this.colours = null), (this.dirty = true));
    new MutationObserver(repaint).observe(document.body, { attributeFilter: ["class"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  }

  toggle() {
    if (this.player.playing) this.player.pause();
    else if (this.now.end > 0) this.player.play();
  }

  spaceBar(event) {
    if (this.keyboard.isOpen) return; // where it is the pedal
    if (event.code !== "Space" || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    const busy = "input, textarea, select, button:not(.mg-handle), summary, a, [contenteditable]";
    if (event.target.closest && event.target.closest(busy)) return;
    event.preventDefault();
    this.toggle();
  }

  listenSurface() {
    const surface = this.surfaceNode;
    let press = null;
    surface.addEventListener("pointerdown", (event) => {
      if (this.keyboard.isOpen) return;
      const seconds = this.seconds(event);
      press = { x: event.clientX, from: this.window.from, seconds, moved: false };
      if (this.marking) surface.setPointerCapture(event.pointerId);
    });
    surface.addEventListener("pointermove", (event) => {
      if (!press || (!press.moved && Math.abs(event.clientX - press.x) < 6)) return;
      press.moved = true;
      if (this.marking) this.setMark(press.seconds, this.seconds(event));
      else if (this.view) this.pan(press.from - (event.clientX - press.x) / this.scale);
    });
    surface.addEventListener("pointerup", (event) => {
      if (press && !press.moved) this.press(event);
      press = null;
    });
    surface.addEventListener("pointercancel", () => (press = null));
    surface.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 }[event.key];
      if (step) this.player.seek(this.player.position + step * (event.shiftKey ? 5 : 1));
      else if (event.key === "Home") this.player.seek(0);
      else if (event.key === "End") this.player.seek(this.now.end);
      else return;
      event.preventDefault();
    });
    surface.addEventListener("wheel", (event) => {
      if (this.keyboard.isOpen) return; // all that is played is seen
      if (event.ctrlKey || event.metaKey) this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.seconds(event));
      else if (this.view && event.deltaX) this.pan(this.view.from + event.deltaX / this.scale);
      else return;
      event.preventDefault();
    }, { passive: false });
  }

  // A file that is dropped on the roll goes the same way as one for the file field.
  listenDrop() {
    const stage = this.stageNode;
    const over = (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      stage.classList.add("mg-over");
    };
    stage.addEventListener("dragenter", over);
    stage.addEventListener("dragover", over);
    stage.addEventListener("dragleave", () => stage.classList.remove("mg-over"));
    stage.addEventListener("drop", (event) => {
      stage.classList.remove("mg-over");
      if (this.takeFile(event.dataTransfer.files)) event.preventDefault();
    });
  }

  // Whether the field for files could take them.
  takeFile(files) {
    const field = document.querySelector(this.props.file_field || "nothing");
    if (!field || !files.length) return false;
    const carried = new DataTransfer();
    for (const file of files) carried.items.add(file);
    field.files = carried.files;
    field.dispatchEvent(new Event("change", { bubbles: true }));
    return true;
  }
}
