// Local storage that may be missing or refuse: settings then last as long as the page.

/** Store an item in local storage, if the browser has one. */
export function saveItem(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // private windows may refuse: then it is lost with the page
  }
}

/** Load an item from local storage, or null. */
export function loadItem(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}
