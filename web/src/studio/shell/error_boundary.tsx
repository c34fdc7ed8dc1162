// A part of the page that fails must not take the others with it.
import { Component, type ComponentChildren } from "preact";

/** Draws its children, or says what went wrong with them. */
export class ErrorBoundary extends Component<{ part: string; children: ComponentChildren }, { error: string }> {
  state = { error: "" };

  componentDidCatch(error: unknown): void {
    console.error(error);
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
