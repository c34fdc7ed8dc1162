// Browsers start no Worker for a page that was opened as a file: there the search runs in a hidden frame instead.
window.Worker = class extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.documentElement.append(this.frame);
    const inner = this.frame.contentWindow;
    inner.postMessage = (data) => {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    };
    this.ready = new Promise((resolve) => {
      const script = inner.document.createElement("script");
      script.src = new URL(url, location.href).href;
      script.onload = resolve;
      inner.document.documentElement.append(script);
    });
  }

  postMessage(data) {
    const { contentWindow } = this.frame;
    this.ready.then(() => contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
};
