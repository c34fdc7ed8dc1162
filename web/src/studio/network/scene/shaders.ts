// GLSL shaders. A layer's values are a byte texture; bars and cells read the same one, so that a new state costs one
// upload per layer and nothing else.

/** Relative height of a NaN's bar; NaN has no height. */
export const NAN_HEIGHT = 0.4;

// Hatching of cells and bar faces: crossed for NaN, rising for infinity, falling for negative infinity. No colour map
// has stripes, so nobody mistakes these for a value, whatever colours they see.
const HATCH = /* glsl */ `
  float stripe(float along) {
    float width = max(fwidth(along), 1e-4);
    float wave = abs(fract(along * 3.0) - 0.5);
    return (1.0 - smoothstep(0.08, 0.08 + width * 3.0, wave)) * (1.0 - smoothstep(0.12, 0.3, width));
  }
  float hatch(vec2 at, float kind) {
    if (kind < 0.5) return 0.0;
    float rising = stripe(at.x - at.y), falling = stripe(at.x + at.y);
    return kind < 1.5 ? max(rising, falling) : kind < 2.5 ? falling : rising;
  }
`;

const SHARED = /* glsl */ `
  precision highp float;
  precision highp int;
  uniform highp sampler2D values; // one byte per cell, in the order of the payload
  uniform highp sampler2D ramp; // 256 colours
  uniform int across; // cells in a row of the texture
  uniform int count; // cells there are
  uniform ivec4 grid; // tile rows, tile columns, rows, columns of what was sent
  uniform vec2 tile; // columns and rows of a tile of the whole plane
  uniform vec2 block; // so many of them a cell stands for
  uniform float gap; // between tiles, in cells
  uniform vec2 size; // of the plane
  uniform vec2 span; // what bytes 1 and 251 stand for; 0 is no data, 253 NaN, 254 and 255 the infinities
  uniform vec2 range; // what the ends of the colours stand for
  uniform float ground; // the value that bars stand on
  uniform vec3 plane; // colours
  uniform vec3 blank;
  uniform vec3 nan;
  uniform vec3 plus;
  uniform vec3 minus;
  uniform vec3 green;
  uniform int chosen; // cells, or -1
  uniform int pointed;
  uniform float veil; // 0…1: how much of the plane shows through a value near zero

  float byteAt(int index) { return floor(texelFetch(values, ivec2(index % across, index / across), 0).r * 255.0 + 0.5); }
  float valueOf(float byte) { return mix(span.x, span.y, (byte - 1.0) / 250.0); }
  bool isStrange(float byte) { return byte > 252.5; }
  vec3 strangeColour(float byte) { return byte < 253.5 ? nan : byte < 254.5 ? plus : minus; }
  vec3 colourOf(float value) {
    float share = clamp((value - range.x) / (range.y - range.x), 0.0, 1.0);
    return texture(ramp, vec2((share * 255.0 + 0.5) / 256.0, 0.5)).rgb;
  }
  float heightOf(float value) {
    return clamp((value - ground) / max(abs(range.x - ground), abs(range.y - ground)), -1.0, 1.0);
  }
  float heightAt(float byte) {
    if (byte < 0.5) return 0.0;
    if (isStrange(byte)) return byte < 253.5 ? ${NAN_HEIGHT.toFixed(2)} : byte < 254.5 ? 1.0 : -1.0;
    return heightOf(valueOf(byte));
  }
  float strength(float height) { return mix(1.0, smoothstep(0.0, 0.22, abs(height)) * 0.84 + 0.16, veil); }
`;

export const BAR_VERTEX = /* glsl */ `${SHARED}
  uniform float tall; // of the highest bar
  uniform float fill; // how much of a cell's width a bar takes
  out vec3 tint;
  out float alpha;
  out float stripes; // 0: none, else which
  out vec3 side; // the face's normal
  out vec2 spot; // where on the face, -1…1
  void main() {
    int cell = gl_InstanceID;
    int inside = cell % (grid.z * grid.w);
    ivec2 which = ivec2((cell / (grid.z * grid.w)) % grid.y, cell / (grid.z * grid.w) / grid.y);
    vec2 within = vec2(float(inside % grid.w), float(inside / grid.w));
    vec2 reach = vec2(grid.y, grid.x) * tile + (vec2(grid.y, grid.x) - 1.0) * gap;
    vec2 last = min((within + 1.0) * block, tile);
    vec2 middle = vec2(which) * (tile + gap) + (within * block + last) * 0.5;
    float byte = byteAt(cell);
    float height = heightAt(byte);
    float stands = (abs(height) < 0.012 ? 0.012 * (height < 0.0 ? -1.0 : 1.0) : height) * tall;
    tint = isStrange(byte) ? strangeColour(byte) : byte > 0.5 ? colourOf(valueOf(byte)) : blank;
    alpha = isStrange(byte) ? 1.0 : byte > 0.5 ? strength(height) : 0.5;
    stripes = isStrange(byte) ? byte - 252.0 : 0.0;
    if (cell == chosen) { tint = green; alpha = 1.0; }
    else if (cell == pointed) { tint = mix(tint, vec3(1.0), 0.25); alpha = max(alpha, 0.7); }
    side = normal;
    spot = abs(normal.y) > 0.5 ? position.xz * 2.0 : abs(normal.x) > 0.5 ? position.zy * 2.0 : position.xy * 2.0;
    vec2 corner = (middle + position.xz * fill * (last - within * block)) / reach - 0.5;
    vec3 spotted = vec3(corner.x * size.x, (position.y + 0.5) * stands, corner.y * size.y);
    if (stands < 0.0) side.y = -side.y; // the box is turned inside out: its lid is below
    gl_Position = projectionMatrix * modelViewMatrix * vec4(spotted, 1.0);
  }
`;

export const BAR_FRAGMENT = /* glsl */ `
  precision highp float;
  uniform vec3 plane;
  in vec3 tint;
  in float alpha;
  in float stripes;
  in vec3 side;
  in vec2 spot;
  out vec4 seen;
  ${HATCH}
  void main() {
    float light = side.y > 0.5 ? 1.0 : side.y < -0.5 ? 0.5 : abs(side.z) > 0.5 ? 0.84 : 0.68;
    vec2 edge = smoothstep(1.0 - max(fwidth(spot) * 1.5, vec2(0.06)), vec2(1.0), abs(spot));
    light *= 1.0 - 0.16 * max(edge.x, edge.y);
    vec3 shade = mix(mix(plane, tint * light, alpha), plane, 0.75 * hatch(spot * 0.5 + 0.5, stripes));
    float cover = max(alpha, 0.62);
    seen = vec4(shade * cover, cover); // premultiplied
  }
`;

export const CELL_VERTEX = /* glsl */ `
  uniform vec2 size;
  out vec2 share;
  void main() {
    share = vec2(position.x, position.z) + 0.5;
    gl_Position = projectionMatrix * modelViewMatrix * vec4(position.x * size.x, 0.0, position.z * size.y, 1.0);
  }
`;

export const CELL_FRAGMENT = /* glsl */ `${SHARED}
  uniform int picture; // RGB: 1 with its channels one after the other, 2 side by side; 0: none
  uniform vec2 shades; // the values that are black and full colour
  in vec2 share;
  out vec4 seen;
  ${HATCH}
  vec4 pixelAt(vec2 spot, float line) {
    vec2 whole = (picture == 2 ? vec2(tile.x / 3.0, tile.y) : tile) / block;
    ivec2 sent = picture == 2 ? ivec2(grid.w / 3, grid.z) : grid.wz;
    ivec2 at = clamp(ivec2(spot * whole), ivec2(0), sent - 1);
    int pixels = sent.x * sent.y, index = at.y * sent.x + at.x;
    int first = picture == 2 ? index * 3 : index, step = picture == 2 ? 1 : pixels;
    vec3 bytes = vec3(byteAt(first), byteAt(first + step), byteAt(first + 2 * step));
    float most = max(bytes.x, max(bytes.y, bytes.z));
    vec3 values = mix(vec3(span.x), vec3(span.y), (bytes - 1.0) / 250.0);
    vec3 tint = clamp((values - shades.x) / (shades.y - shades.x), 0.0, 1.0);
    if (min(bytes.x, min(bytes.y, bytes.z)) < 0.5) tint = mix(plane, blank, 0.5);
    if (isStrange(most)) tint = mix(strangeColour(most), plane, 0.75 * line * hatch(fract(spot * whole), most - 252.0));
    if (chosen >= 0 && (picture == 2 ? chosen / 3 : chosen % pixels) == index) tint = green;
    else if (pointed >= 0 && (picture == 2 ? pointed / 3 : pointed % pixels) == index) tint = mix(tint, vec3(1.0), 0.3);
    return vec4(tint, 1.0);
  }
  vec4 shadeAt(vec2 spot, float line) {
    vec2 which = clamp(floor(spot / (tile + gap)), vec2(0.0), vec2(grid.y, grid.x) - 1.0);
    vec2 inside = spot - which * (tile + gap);
    if (inside.x >= tile.x || inside.y >= tile.y || inside.x < 0.0 || inside.y < 0.0) return vec4(0.0);
    ivec2 at = min(ivec2(inside / block), grid.wz - 1);
    int cell = ((int(which.y) * grid.y + int(which.x)) * grid.z + at.y) * grid.w + at.x;
    if (cell >= count) return vec4(0.0);
    float byte = byteAt(cell);
    vec3 tint = isStrange(byte) ? strangeColour(byte) : byte > 0.5 ? colourOf(valueOf(byte)) : blank;
    float alpha = isStrange(byte) ? 1.0 : byte > 0.5 ? strength(heightOf(valueOf(byte))) : 0.5;
    if (isStrange(byte)) tint = mix(tint, plane, 0.75 * line * hatch(fract(inside / block), byte - 252.0));
    if (cell == chosen) { tint = green; alpha = 1.0; }
    else if (cell == pointed) { tint = mix(tint, vec3(1.0), 0.3); alpha = max(alpha, 0.7); }
    vec2 border = abs(fract(inside / block) - 0.5);
    float lined = line * smoothstep(0.42, 0.5, max(border.x, border.y));
    tint = mix(tint, plane, 0.55 * lined);
    return vec4(mix(plane, tint, alpha), 1.0);
  }
  void main() {
    vec2 tiles = vec2(grid.y, grid.x);
    vec2 reach = tiles * tile + (tiles - 1.0) * gap;
    vec2 spot = share * reach;
    vec2 step = fwidth(spot) / block; // cells per pixel
    float most = max(step.x, step.y);
    float line = 1.0 - smoothstep(0.10, 0.22, most);
    if (picture > 0) {
      vec2 width = fwidth(share);
      seen = vec4(0.0);
      for (int n = 0; n < 4; n++) seen += 0.25 * pixelAt(share + (vec2(n % 2, n / 2) - 0.5) * 0.5 * width, line);
      return;
    }
    vec4 found = vec4(0.0);
    if (most < 0.5) found = shadeAt(spot, line);
    else { // several cells in a pixel: none of a few may get lost
      for (int n = 0; n < 4; n++) found += 0.25 * shadeAt(spot + (vec2(n % 2, n / 2) - 0.5) * 0.5 * step * block, 0.0);
    }
    if (found.a < 0.01) discard;
    seen = found;
  }
`;

export const PLANE_VERTEX = /* glsl */ `
  uniform vec2 size;
  out vec2 spot;
  void main() {
    spot = position.xz * size;
    gl_Position = projectionMatrix * modelViewMatrix * vec4(spot.x, 0.0, spot.y, 1.0);
  }
`;

export const PLANE_FRAGMENT = /* glsl */ `
  precision highp float;
  uniform vec2 size;
  uniform float round;
  uniform vec3 fill;
  uniform vec3 rim;
  uniform vec3 glow;
  uniform float cover;
  uniform float lit; // 1 where the layer is pointed at or chosen
  uniform float fault; // 1 where something is wrong with it, 2 where that is the first
  uniform vec3 wrong;
  in vec2 spot;
  out vec4 seen;
  void main() {
    vec2 corner = abs(spot) - size * 0.5 + round;
    float away = length(max(corner, 0.0)) + min(max(corner.x, corner.y), 0.0) - round;
    float pixel = max(length(vec2(dFdx(away), dFdy(away))), 1e-6);
    float inside = 1.0 - smoothstep(-pixel, 0.0, away);
    if (inside <= 0.0) discard;
    float edge = smoothstep(-pixel * (2.0 + lit + 2.0 * fault), -pixel, away);
    float alpha = mix(cover, 0.55 + 0.45 * max(lit, min(fault, 1.0)), edge) * inside;
    vec3 line = mix(mix(rim, glow, lit), wrong, min(fault, 1.0));
    seen = vec4(mix(fill, line, edge) * alpha, alpha);
  }
`;

export const ARROW_VERTEX = /* glsl */ `
  in float along; // how far from its start, in widths
  in float dash; // length of a dash in widths; 0: none
  in vec3 tint;
  out float way;
  out float dashed;
  out vec3 ink;
  void main() {
    way = along;
    dashed = dash;
    ink = tint;
    gl_Position = projectionMatrix * modelViewMatrix * vec4(position, 1.0);
  }
`;

export const ARROW_FRAGMENT = /* glsl */ `
  precision highp float;
  in float way;
  in float dashed;
  in vec3 ink;
  out vec4 seen;
  void main() {
    if (dashed > 0.0 && fract(way / (2.0 * dashed)) > 0.5) discard;
    seen = vec4(ink * 0.92, 0.92);
  }
`;
