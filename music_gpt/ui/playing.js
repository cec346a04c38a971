// A prompt that one plays -> the roll shows it as it comes, in place of its value, and hands it in.
// While one plays nothing is composed, listened to or marked.

const BUSY = "Music is being composed; stop it before you play.";

class PlayedRoll extends RollHandles {
  makeKeyboard() {
    return new PianoKeyboard(this.root.querySelector(".mg-keyboard"), this.player, {
      use: (file) => this.takeFile([file]),
      opened: () => this.beginPlaying(),
      closed: () => this.endPlaying(),
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
    this.root.scrollIntoView({ behavior: "smooth", block: "nearest" });
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
    const kept = recording.closed;
    const end = recording.elapsed(now);
    return { closed: kept, fresh: [], kept, open: recording.open(now), front: end, end, growing: false };
  }

  frame() {
    if (this.keyboard.isOpen) {
      this.now = this.collect();
      this.player.offset = this.now.end;
      this.dirty = this.dirty || this.now.end > 0; // its time goes on
    }
    super.frame();
  }
}
