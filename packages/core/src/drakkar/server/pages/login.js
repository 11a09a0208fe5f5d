// The login form works without this; here it counts down the wait, and steps aside for who is logged in already:
// the cookie does not come along when a page of another worker leads here, and does as soon as we ask ourselves.

const query = new URLSearchParams(location.search);
const wait = document.getElementById("wait");
const until = performance.now() + 1000 * (/\d+/.exec(wait.textContent)?.[0] ?? 0);

function count() {
  const left = Math.ceil((until - performance.now()) / 1000);
  wait.textContent = left > 0 ? `Try again in ${left} s.` : "You can try again now.";
  if (left > 0) setTimeout(count, 500);
}
if (wait.textContent) count();

const answer = await fetch("api/v1/identity").catch(() => null);
if (answer?.ok) {
  const next = query.get("next") ?? "";
  location.replace(/^(history)?(\?|$)/.test(next) ? `./${next}` : "./");
}
