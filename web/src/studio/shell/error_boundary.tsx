// An error boundary: a failing part of the page must not take down the others.
import { Component, type ComponentChildren } from "preact";

/** Render the children, or their error. */
export class ErrorBoundary extends Component<{ part: string; children: ComponentChildren }, { error: string }> {
  state = { error: "" };

  componentDidCatch(error: unknown): void {
    console.error(error); // eslint-disable-line no-console -- for whoever looks into what broke
    this.setState({ error: error instanceof Error ? error.message : String(error) });
  }

  render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    return (
      <div class="empty" role="alert">
        <p>
          {this.props.part} failed: {error}. The run is not touched by this.
        </p>
        <p>
          <button onClick={() => this.setState({ error: "" })}>Try again</button>
        </p>
      </div>
    );
  }
}
