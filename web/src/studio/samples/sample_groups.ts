// Which samples are shown at a step: of each name the last ones up to it.
import type { SampleHead } from "../messages";

/** The samples of one name and kind that are shown together. */
export interface SampleGroup {
  key: string;
  name: string;
  kind: string;
  step: number;
  samples: SampleHead[];
}

/** The steps that have samples, ascending. */
export function stepsOf(samples: readonly SampleHead[]): number[] {
  return [...new Set(samples.map(({ step }) => step))].sort((a, b) => a - b);
}

/** Of each name and kind its newest samples at or before a step; -1: the newest of all. */
export function groupsAt(samples: readonly SampleHead[], step: number): SampleGroup[] {
  const groups = new Map<string, SampleGroup>();
  for (const sample of samples) {
    const key = `${sample.kind} ${sample.name}`;
    const group = groups.get(key) ?? { key, name: sample.name, kind: sample.kind, step: -Infinity, samples: [] };
    groups.set(key, group); // also for what comes later: cards keep their order
    if ((step >= 0 && sample.step > step) || sample.step < group.step) continue;
    if (sample.step > group.step) Object.assign(group, { step: sample.step, samples: [] });
    group.samples.push(sample);
  }
  return [...groups.values()];
}

/** The index of the last step that is at or before `step`; of the newest for -1. */
export function indexOfStep(steps: readonly number[], step: number): number {
  if (step < 0) return steps.length - 1;
  const later = steps.findIndex((candidate) => candidate > step);
  return later < 0 ? steps.length - 1 : Math.max(0, later - 1);
}
