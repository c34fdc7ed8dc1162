// How the network is shown: chosen by the reader, remembered by the browser.
import { loadItem, saveItem } from "../theme";
import type { Variable } from "../messages";
import type { Pose } from "./scene/orbit_camera";
import { defaultRangeSetting, type RangeSetting } from "./values/value_ranges";

export interface Settings {
  labels: boolean;
  arrows: boolean;
  height: number; // of bars
  lean: boolean; // a stack leans to fill the window
  speed: number; // moments a second when it plays
  rasterLength: number; // moments
  ranges: Record<string, RangeSetting>; // by variable (asked by hasOwn: its name may be "constructor"), where somebody changed it
}

export const DEFAULT_SETTINGS: Settings = {
  labels: true, arrows: true, height: 1, lean: true, speed: 5, rasterLength: 64, ranges: {},
}; // prettier-ignore

const SETTINGS_KEY = "torcheer.network";
const VIEWS_KEY = "torcheer.network.views";

/** What was chosen before, as far as it makes sense today. */
export function loadSettings(): Settings {
  const stored = loadRecord(SETTINGS_KEY);
  const settings: Settings = { ...DEFAULT_SETTINGS, ranges: {} };
  for (const name of Object.keys(DEFAULT_SETTINGS) as (keyof Settings)[]) {
    if (name !== "ranges" && typeof stored[name] === typeof DEFAULT_SETTINGS[name]) Object.assign(settings, { [name]: stored[name] });
  }
  const ranges = Object.entries(isRecord(stored.ranges) ? stored.ranges : {});
  settings.ranges = Object.fromEntries(ranges.filter((entry): entry is [string, RangeSetting] => isRange(entry[1])));
  return settings;
}

/** Keep what was chosen. */
export function saveSettings(settings: Settings): void {
  saveItem(SETTINGS_KEY, JSON.stringify(settings));
}

/** The range and colours of a variable: as chosen, or as the variable has it. */
export function rangeSetting(settings: Settings, variable: Variable | undefined): RangeSetting {
  const isChosen = variable && Object.hasOwn(settings.ranges, variable.name);
  return isChosen ? settings.ranges[variable.name] : defaultRangeSetting(variable);
}

/** Four views of a network that somebody saved; null where nobody did. */
export function savedViews(network: string): (Pose | null)[] {
  const views = loadRecord(VIEWS_KEY);
  const stored = Object.hasOwn(views, network) ? views[network] : null;
  return [0, 1, 2, 3].map((n) => (Array.isArray(stored) && isPose(stored[n]) ? stored[n] : null));
}

/** Save a view of a network. */
export function saveView(network: string, number: number, pose: Pose): void {
  const views = savedViews(network);
  views[number] = pose;
  saveItem(VIEWS_KEY, JSON.stringify({ ...loadRecord(VIEWS_KEY), [network]: views }));
}

function loadRecord(key: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(loadItem(key) ?? "{}");
    return isRecord(value) ? value : {};
  } catch {
    return {}; // somebody else wrote there
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isRange(value: unknown): value is RangeSetting {
  return (
    isRecord(value) && ["auto", "layer", "percentile", "fixed"].includes(String(value.mode)) &&
    [value.min, value.max, value.percent].every(Number.isFinite) && typeof value.zeroCentred === "boolean" &&
    typeof value.map === "string"
  ); // prettier-ignore
}

function isPose(value: unknown): value is Pose {
  const names = ["x", "y", "z", "azimuth", "elevation", "distance"];
  return isRecord(value) && names.every((name) => Number.isFinite(value[name]));
}
