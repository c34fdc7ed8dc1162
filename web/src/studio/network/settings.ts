// Settings of the Network tab, kept in the browser's local storage.
import { loadItem, saveItem } from "../local_storage";
import type { Variable } from "../messages";
import type { Pose } from "./scene/orbit_camera";
import { defaultRangeSetting, type RangeSetting } from "./values/value_ranges";

export interface Settings {
  labels: boolean;
  arrows: boolean;
  height: number; // bar height factor
  lean: boolean; // whether a stack leans to fill the window
  speed: number; // moments per second when playing
  rasterLength: number; // in moments
  ranges: Record<string, RangeSetting>; // by variable, if changed by the user (look up with hasOwn: a variable may be named "constructor")
}

export const DEFAULT_SETTINGS: Settings = {
  labels: true, arrows: true, height: 1, lean: true, speed: 5, rasterLength: 64, ranges: {},
}; // prettier-ignore

const SETTINGS_KEY = "torcheer.network";
const VIEWS_KEY = "torcheer.network.views";

/** Load the stored settings, skipping what is no longer valid. */
export function loadSettings(): Settings {
  const stored = loadRecord(SETTINGS_KEY);
  const settings: Settings = { ...DEFAULT_SETTINGS, ranges: {} };
  for (const name of Object.keys(DEFAULT_SETTINGS) as (keyof Settings)[]) {
    if (name !== "ranges" && typeof stored[name] === typeof DEFAULT_SETTINGS[name])
      Object.assign(settings, { [name]: stored[name] });
  }
  const ranges = Object.entries(isRecord(stored.ranges) ? stored.ranges : {});
  settings.ranges = Object.fromEntries(ranges.filter((entry): entry is [string, RangeSetting] => isRange(entry[1])));
  return settings;
}

/** Store the settings. */
export function saveSettings(settings: Settings): void {
  saveItem(SETTINGS_KEY, JSON.stringify(settings));
}

/** The range and colours of a variable: as chosen, else the variable's default. */
export function rangeSetting(settings: Settings, variable: Variable | undefined): RangeSetting {
  const isChosen = variable && Object.hasOwn(settings.ranges, variable.name);
  return isChosen ? settings.ranges[variable.name] : defaultRangeSetting(variable);
}

/** The four saved views of a network; null for an empty slot. */
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
    return {}; // not our JSON
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
