// Icons for buttons: one path each on a 16×16 grid, in the text colour.
const PATHS = {
  play: "M4.5 2.8v10.4L13 8z",
  stop: "M3.8 3.8h8.4v8.4H3.8z",
  reset: "M8 2.5a5.5 5.5 0 1 0 5.2 3.7l-1.4.5A4 4 0 1 1 8 4v2.2l3.4-3L8 .3z",
  step: "M3 3v10l6-5zm7 0h2v10h-2z",
  skip: "M1.5 3v10L6.5 8zm5.5 0v10l5-5zm6 0h1.6v10H13z",
  check: "M2.2 8.6l1.2-1.2 3 3 6.2-6.6 1.2 1.1-7.4 8z",
  dice: "M3 2h10a1 1 0 0 1 1 1v10a1 1 0 0 1-1 1H3a1 1 0 0 1-1-1V3a1 1 0 0 1 1-1zm.5 1.5v9h9v-9zm1.3 1.3h1.9v1.9H4.8zm4.5 0h1.9v1.9H9.3zM4.8 9.3h1.9v1.9H4.8zm4.5 0h1.9v1.9H9.3z",
  close: "M3.3 4.4l1.1-1.1L8 6.9l3.6-3.6 1.1 1.1L9.1 8l3.6 3.6-1.1 1.1L8 9.1l-3.6 3.6-1.1-1.1L6.9 8z",
  panel: "M2 2.5h12v11H2zM3.4 4v8h2.8V4zM7.6 4v8h5V4z",
  bell: "M8 1.5a4 4 0 0 1 4 4c0 3 .7 4.2 1.6 5v1H2.4v-1c.9-.8 1.6-2 1.6-5a4 4 0 0 1 4-4zM6.4 12.6h3.2a1.6 1.6 0 0 1-3.2 0z",
  sun: "M8 4.8a3.2 3.2 0 1 1 0 6.4 3.2 3.2 0 0 1 0-6.4zM7.3.8h1.4v2.4H7.3zm0 12h1.4v2.4H7.3zM.8 7.3h2.4v1.4H.8zm12 0h2.4v1.4h-2.4zM2.4 3.4l1-1 1.7 1.7-1 1zm8.5 8.5l1-1 1.7 1.7-1 1zM3.4 13.6l-1-1 1.7-1.7 1 1zm8.5-8.5l-1-1 1.7-1.7 1 1z",
  moon: "M6.2 1.8a5 5 0 0 0 7.9 6.1A6.3 6.3 0 1 1 6.2 1.8z",
  half: "M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8zm0 1.5a4.7 4.7 0 0 0 0 9.4z",
  matrix: "M2 2h5.4v5.4H2zm1.4 1.4v2.6H6V3.4zM8.6 2H14v5.4H8.6zM2 8.6h5.4V14H2zm6.6 0H14V14H8.6zm1.4 1.4v2.6h2.6V10z",
  save: "M2.5 2.5h8.6l2.4 2.4v8.6h-11zm1.4 1.4v8.2h8.2V5.5l-1.6-1.6v2.7H5V3.9zM6.4 3.9v1.4h2.7V3.9zM5 9h6v2.4H5z",
  open: "M1.8 3h4.4l1.4 1.6h6.6v8.6H1.8zm1.4 3v5.8h9.6V6z",
  plus: "M7.2 3h1.6v4.2H13v1.6H8.8V13H7.2V8.8H3V7.2h4.2z",
  minus: "M3 7.2h10v1.6H3z",
  whole: "M2 2h4.4v1.5H3.5v2.9H2zm7.6 0H14v4.4h-1.5V3.5H9.6zM2 9.6h1.5v2.9h2.9V14H2zm10.5 0H14V14H9.6v-1.5h2.9z",
  down: "M7.2 2h1.6v6l2.4-2.4 1.1 1.1L8 11 3.7 6.7l1.1-1.1L7.2 8zM3 12.4h10V14H3z",
  copy: "M5 2h8.5v9H11V9.6h1.1V3.4H6.4V5H5zM2.5 5H10v9H2.5zm1.4 1.4v6.2h4.7V6.4z",
  table: "M2 2.5h12v11H2zm1.4 1.4v1.9h9.2V3.9zm0 3.2v1.7h4V7.1zm5.2 0v1.7h4V7.1zm-5.2 3v2h4v-2zm5.2 0v2h4v-2z",
} as const;

export type IconName = keyof typeof PATHS;

/** An icon; a button with only an icon needs an aria-label. */
export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill="currentColor" fill-rule="evenodd" />
    </svg>
  );
}
