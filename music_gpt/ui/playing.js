// A prompt that one plays -> the roll shows it as it comes, in place of its value, and hands it in.
// While one plays nothing is composed, listened to or marked.

const BUSY = "Music is being composed; stop it before you play.";
const KEPT = "What you played is kept: Play it yourself shows it again, to use it or to start over.";
const LONGER = 1.5; // steps in which the roll makes room for more time

class PlayedRoll extends ChangedRoll {
  makeKeyboard() {
    return new PianoKeyboard(this.root.querySelector(".mg-keyboard"), this.player, {
      use: (file) => this.takeFile([file]),
      opened: () => this.beginPlaying(),
      closed: () => this.endPlaying(),
      laidOut: () => this.showKeys(),
      left: () => this.keyboard.isUnused && this.answer(KEPT),
      moved: () => (this.dirty = true),
      say: (text) => (this.spokenNode.textContent = text),
    });
  }

  // Music that is under way would take the roll from who plays.
  sitDown() {
    if (!this.busy) this.keyboard.open();
    else this.statusNode.textContent = this.spokenNode.textContent = BUSY;
  }

  beginPlaying() {
    this.player.pause();
    this.left = { view: this.view, marking: this.marking, offset: this.player.offset };
    this.showPlaying({ view: null, marking: false, offset: 0 });
    this.showKeys();
  }

  // The keys are seen whole, also when the screen was turned.
  showKeys() {
    this.root.scrollIntoView({ block: "nearest" });
    this.keyboard.root.scrollIntoView({ block: "nearest" });
  }

  endPlaying() {
    this.showPlaying(this.left);
  }

  showPlaying({ view, marking, offset }) {
    const { isOpen } = this.keyboard;
    this.root.dataset.playing = isOpen;
    this.surfaceNode.tabIndex = isOpen ? -1 : 0;
    this.view = view;
    this.marking = marking;
    this.player.offset = offset;
    this.now = this.collect();
    this.showName();
    this.showHandles();
    this.showTransport();
    this.dirty = true;
  }

  // What is played, as far as it has come.
  played() {
    const { recording } = this.keyboard;
    const now = performance.now();
    const kept = recording.closed.concat(recording.open(now));
    const end = recording.elapsed(now);
    return { closed: kept, fresh: [], kept, open: [], front: end, end, growing: false };
  }

  // Seconds that the roll shows of it: it is drawn anew only when they are too few.
  get playedSpan() {
    let seconds = SHORTEST_SPAN;
    while (seconds < this.now.end) seconds *= LONGER;
    return seconds;
  }

  frame() {
    if (this.keyboard.isOpen) {
      const before = this.playedSpan;
      this.now = this.collect();
      this.player.offset = this.now.end;
      this.dirty = this.dirty || this.playedSpan !== before;
    }
    super.frame();
  }
}
