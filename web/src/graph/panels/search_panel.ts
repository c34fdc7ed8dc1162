// The search field and the list of what it found.
import type { App } from "../app";
import { h, plural } from "../dom";
import { SearchIndex, type SearchEntry } from "./search_index";

const MAX_LISTED = 100;
const TYPING_WAIT_MS = 90; // for the next letter

export class SearchPanel {
  readonly input = h("input", {
    type: "search",
    placeholder: "Search name, class, shape   /",
    "aria-label": "Search by name, class, function, shape or label",
    autocomplete: "off",
    spellcheck: "false",
  });
  readonly results = h("section", { class: "results", "aria-label": "Search results", hidden: true });
  private index: SearchIndex | null = null;
  private found: SearchEntry[] = [];
  private at = -1;
  private timer = 0;

  constructor(private readonly app: App) {
    this.input.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.search(), TYPING_WAIT_MS);
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
      const isStale = this.shownFor !== this.input.value;
      if (isStale) this.search();
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
      this.index = new SearchIndex(data, details);
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
    const first = Math.max(0, Math.min(this.at - MAX_LISTED / 2, this.found.length - MAX_LISTED));
    const rows = this.found.slice(first, first + MAX_LISTED).map((entry, n) => this.row(entry, first + n));
    const unlisted = this.found.length - MAX_LISTED;
    const isIndexing = !this.index?.done;
    const summary = this.found.length ? plural(this.found.length, "hit") : isIndexing ? "Reading …" : "Nothing found";
    const position = this.at >= 0 ? `${this.at + 1} of ` : "";
    const hint = "Try part of a name, a class (Conv2d), a function (softmax) or a shape (64×55).";
    this.results.replaceChildren(
      h("p", { class: "soft", role: "status" }, position + summary + (isIndexing && this.found.length ? " so far" : "")),
      this.found.length ? h("ol", {}, ...rows) : h("p", { class: "hint" }, isIndexing ? "" : hint),
      unlisted > 0 ? h("p", { class: "hint" }, `${MAX_LISTED} are listed; Enter goes through all.`) : "",
    );
  }

  private row(entry: SearchEntry, number: number): HTMLElement {
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
