// How the network is shown: chosen by the reader, remembered by the browser.
import { recall, remember } from "../theme";
import type { Variable } from "../messages";
import type { Pose } from "./scene/orbit_camera";
import { firstSetting, type RangeSetting } from "./values/value_ranges";

export interface Settings {
  labels: boolean;
  arrows: boolean;
  height: number; // of bars
  lean: boolean; // a stack leans to fill the window
  speed: number; // moments a second when it plays
  rasterLength: number; // moments
  ranges: Record<string, RangeSetting>; // by variable (asked by hasOwn: its name may be "constructor"), where somebody changed it
}

export const FIRST: Settings = {
  labels: true, arrows: true, height: 1, lean: true, speed: 5, rasterLength: 64, ranges: {},
}; // prettier-ignore

const KEY = "torcheer.network";
const VIEWS = "torcheer.network.views";

/** What was chosen before, as far as it makes sense today. */
export function remembered(): Settings {
  const found = parsed(KEY);
  const settings: Settings = { ...FIRST, ranges: {} };
  for (const name of Object.keys(FIRST) as (keyof Settings)[]) {
    if (name !== "ranges" && typeof found[name] === typeof FIRST[name]) Object.assign(settings, { [name]: found[name] });
  }
  const ranges = Object.entries(isRecord(found.ranges) ? found.ranges : {});
  settings.ranges = Object.fromEntries(ranges.filter((one): one is [string, RangeSetting] => isRange(one[1])));
  return settings;
}

/** Keep what was chosen. */
export function keep(settings: Settings): void {
  remember(KEY, JSON.stringify(settings));
}

/** The range and colours of a variable: as chosen, or as the variable has it. */
export function rangeSetting(settings: Settings, variable: Variable | undefined): RangeSetting {
  const chosen = variable && Object.hasOwn(settings.ranges, variable.name);
  return chosen ? settings.ranges[variable.name] : firstSetting(variable);
}

/** Four views of a network that somebody saved; null where nobody did. */
export function savedViews(network: string): (Pose | null)[] {
  const views = parsed(VIEWS);
  const found = Object.hasOwn(views, network) ? views[network] : null;
  return [0, 1, 2, 3].map((n) => (Array.isArray(found) && isPose(found[n]) ? found[n] : null));
}

/** Save a view of a network. */
export function saveView(network: string, number: number, pose: Pose): void {
  const views = savedViews(network);
  views[number] = pose;
  remember(VIEWS, JSON.stringify({ ...parsed(VIEWS), [network]: views }));
}

function parsed(key: string): Record<string, unknown> {
  try {
    const found: unknown = JSON.parse(recall(key) ?? "{}");
    return isRecord(found) ? found : {};
  } catch {
    return {}; // somebody else wrote there
  }
}

function isRecord(found: unknown): found is Record<string, unknown> {
  return typeof found === "object" && found !== null && !Array.isArray(found);
}

function isRange(found: unknown): found is RangeSetting {
  return (
    isRecord(found) && ["auto", "layer", "percentile", "fixed"].includes(String(found.mode)) &&
    [found.min, found.max, found.percent].every(Number.isFinite) && typeof found.zeroCentred === "boolean" &&
    typeof found.map === "string"
  ); // prettier-ignore
}

function isPose(found: unknown): found is Pose {
  const names = ["x", "y", "z", "azimuth", "elevation", "distance"];
  return isRecord(found) && names.every((name) => Number.isFinite(found[name]));
}
