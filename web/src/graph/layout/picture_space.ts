// Space for a small picture below the text of some boxes, where a page has pictures to show.
import type { Payload } from "../payload";

/** Make the boxes of these leaves higher by `height`, those of all others as high as Python made them. */
export function reservePictureSpace({ leaves }: Payload, pictured: ReadonlySet<number>, height: number): void {
  leaves.forEach((leaf, number) => {
    const wanted = pictured.has(number) ? height : 0;
    const more = wanted - (leaf.pictureSpace ?? 0);
    leaf.pictureSpace = wanted;
    for (const box of leaf.boxes) box.height += more;
  });
}
