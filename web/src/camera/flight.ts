// Flights of cameras, in 2D and 3D alike: from one pose to another, eased, or at once for who asked for less motion.

const FLIGHT_MS = 220;

/** Whether the user asked for reduced motion. */
export function prefersReducedMotion(): boolean {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** How far a flight has come, from 0 to 1, at a share of its time: slow at both ends. */
export function ease(share: number): number {
  const within = Math.max(0, Math.min(1, share));
  return within * within * (3 - 2 * within);
}

/** The pose between two others, each number by itself. */
export function mixPoses<Pose extends { [Name in keyof Pose]: number }>(from: Pose, to: Pose, share: number): Pose {
  const mixed = { ...from };
  for (const name of Object.keys(from) as (keyof Pose)[]) {
    mixed[name] = (from[name] + (to[name] - from[name]) * share) as Pose[keyof Pose];
  }
  return mixed;
}

/** The flight of a camera; a new one, or `cancel`, ends it where it is. */
export class Flight<Pose extends { [Name in keyof Pose]: number }> {
  private request = 0;

  constructor(private readonly show: (pose: Pose) => void) {}

  /** Fly; without `animate`, or with reduced motion, be there at once. */
  start(from: Pose, to: Pose, animate = true): void {
    this.cancel();
    if (!animate || prefersReducedMotion()) return this.show(to);
    const began = performance.now();
    const step = (now: number): void => {
      const share = (now - began) / FLIGHT_MS;
      this.show(share < 1 ? mixPoses(from, to, ease(share)) : to);
      if (share < 1) this.request = requestAnimationFrame(step);
    };
    this.request = requestAnimationFrame(step);
  }

  cancel(): void {
    cancelAnimationFrame(this.request);
  }
}
