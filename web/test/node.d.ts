// As much of Node as the tests use; its own types would be another package.
declare module "node:test" {
  export function test(name: string, run: () => void | Promise<void>): Promise<void>;
}
declare module "node:assert/strict" {
  export function ok(value: unknown, message?: string): asserts value;
  export function equal(found: unknown, expected: unknown, message?: string): void;
  export function notEqual(found: unknown, unexpected: unknown, message?: string): void;
  export function deepEqual(found: unknown, expected: unknown, message?: string): void;
  export function throws(run: () => unknown, expected?: RegExp): void;
  export function match(text: string, expected: RegExp, message?: string): void;
}
declare module "node:fs" {
  export function readFileSync(path: string, encoding: "utf8"): string; // paths start in web/
}
declare module "node:vm" {
  export class Script {
    constructor(source: string);
  }
}
