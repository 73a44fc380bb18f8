"""Scripts that read properties of a page for which WebDriver has no command."""

WATCH_VERDICT = """
window.said = [];
const live = document.getElementById('verdict');
const note = () => window.said.push(live.textContent);
new MutationObserver(note).observe(live, {childList: true, characterData: true, subtree: true});
"""
"""Record every later change of the verdict in `window.said`."""

LOOKS = """
const asked = performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/v1/status'));
return asked.length;
"""
"""Number of the page's requests for the status."""

TABLES = """
return Array.from(document.querySelectorAll('table'), (table) => ({
  caption: table.caption?.textContent ?? '',
  columns: table.querySelectorAll('thead th:not([scope=col])').length,
  rows: table.querySelectorAll('tbody tr > :first-child:not(th[scope=row])').length,
}));
"""
"""Caption of each table, and numbers of columns and rows whose header cell has no scope."""

NAMELESS = """
const reached = 'button, input, select, a, summary, [tabindex="0"]';
const named = (node) => node.textContent.trim() || node.labels?.length || node.getAttribute('aria-label');
return Array.from(document.querySelectorAll(reached))
  .filter((node) => node.checkVisibility() && !named(node)).map((node) => node.outerHTML);
"""
"""Elements that the keyboard reaches but that have no accessible name."""

POOR_CONTRAST = """
const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = (rgb) => {
  const [r, g, b] = rgb.slice(0, 3).map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const poor = [];
for (const node of document.querySelectorAll('body *')) {
  const own = Array.from(node.childNodes).some((child) => child.nodeType === 3 && child.textContent.trim());
  if (!own || !node.checkVisibility()) continue;
  const both = [light(parse(getComputedStyle(node).color)), light(ground(node))];
  const ratio = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
  if (ratio < 4.5) poor.push(`${node.outerHTML.slice(0, 80)}: ${ratio.toFixed(2)}`);
}
return poor;
"""
"""Texts with less contrast to their background than WCAG 2.2 requires of small text (1.4.3, level AA)."""
