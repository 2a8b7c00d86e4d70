// Browsers start no worker from a file, so in pages opened from disk the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.title = "search"
      document.body.append(frame)
      this.inner = frame.contentWindow
      this.inner.postMessage = (data) => this.later(data, (event) => {
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      })
      this.loaded = new Promise((resolve) => {
        const script = this.inner.document.createElement("script")
        script.src = new URL(url, location.href).href
        script.onload = resolve
        this.inner.document.body.append(script)
      })
    }
    // As between a page and its worker: a copy, and not before the caller has finished.
    later(data, receive) {
      const copy = structuredClone(data)
      setTimeout(() => receive(new MessageEvent("message", { data: copy })))
    }
    postMessage(data) {
      this.later(data, (event) => this.loaded.then(() => {
        this.inner.dispatchEvent(event)
        if (this.inner.onmessage) this.inner.onmessage(event)
      }))
    }
    terminate() {}
  }
}
