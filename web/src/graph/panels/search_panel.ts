// The search field and the list of what it found.
import type { App } from "../app";
import { h, plural } from "../dom";
import { Index, type Entry } from "./search_index";

const LISTED = 100;
const WAIT_MS = 90; // for the next letter

export class Finder {
  readonly input = h("input", {
    type: "search",
    placeholder: "Search name, class, shape   /",
    "aria-label": "Search by name, class, function, shape or label",
    autocomplete: "off",
    spellcheck: "false",
  });
  readonly results = h("section", { class: "results", "aria-label": "Search results", hidden: true });
  private index: Index | null = null;
  private found: Entry[] = [];
  private at = -1;
  private timer = 0;

  constructor(private readonly app: App) {
    this.input.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.search(), WAIT_MS);
    });
    this.input.addEventListener("keydown", (event) => this.key(event));
    app.on("details", () => {
      if (this.input.value) this.search();
    });
  }

  private key(event: KeyboardEvent): void {
    if (event.key === "Escape") {
      if (this.input.value) this.clear();
      else this.app.screen.focus();
    } else if (event.key === "Enter" || event.key === "ArrowDown") {
      clearTimeout(this.timer);
      const fresh = this.shownFor !== this.input.value;
      if (fresh) this.search();
      this.go(event.shiftKey ? -1 : 1);
    } else if (event.key === "ArrowUp") {
      this.go(-1);
    } else {
      return;
    }
    event.preventDefault();
  }

  private shownFor = "";

  private search(): void {
    const { details, data } = this.app;
    this.shownFor = this.input.value;
    if (details && !this.index) {
      this.index = new Index(data, details);
      if (!this.index.done) void this.index.ready.then(() => this.input.value && this.search());
    }
    this.found = this.index?.find(this.input.value) ?? [];
    this.at = -1;
    this.app.hits = this.found.map((entry) => entry.path);
    this.list();
    this.app.tell("selection");
  }

  clear(): void {
    this.input.value = "";
    this.search();
  }

  private go(step: number): void {
    if (!this.found.length) return;
    this.at = (this.at + step + this.found.length) % this.found.length;
    this.app.show(this.found[this.at].path);
    this.list();
    this.results.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  private list(): void {
    const query = this.input.value.trim();
    this.results.hidden = !query;
    const first = Math.max(0, Math.min(this.at - LISTED / 2, this.found.length - LISTED));
    const rows = this.found.slice(first, first + LISTED).map((entry, n) => this.row(entry, first + n));
    const more = this.found.length - LISTED;
    const reading = !this.index?.done;
    const words = this.found.length ? plural(this.found.length, "hit") : reading ? "Reading …" : "Nothing found";
    const place = this.at >= 0 ? `${this.at + 1} of ` : "";
    const hint = "Try part of a name, a class (Conv2d), a function (softmax) or a shape (64×55).";
    this.results.replaceChildren(
      h("p", { class: "soft", role: "status" }, place + words + (reading && this.found.length ? " so far" : "")),
      this.found.length ? h("ol", {}, ...rows) : h("p", { class: "hint" }, reading ? "" : hint),
      more > 0 ? h("p", { class: "hint" }, `${LISTED} are listed; Enter goes through all.`) : "",
    );
  }

  private row(entry: Entry, number: number): HTMLElement {
    const go = (): void => {
      this.at = number;
      this.app.show(entry.path);
      this.list();
    };
    const current = number === this.at && "true";
    const { name, kind, where, label } = entry;
    return h(
      "li",
      {},
      h(
        "button",
        { "aria-current": current, title: where, click: go },
        h("b", {}, name || kind),
        name ? h("span", { class: "soft" }, kind) : null,
        h("small", { class: "soft" }, [where !== name ? where : "", label].filter(Boolean).join("  ·  ")),
      ),
    );
  }
}
