// The login form works without this; here it tells what went wrong, and steps aside for who is logged in already:
// the cookie does not come along when a page of another worker leads here, and does as soon as we ask ourselves.

const query = new URLSearchParams(location.search);
const problem = document.getElementById("problem");
const wait = Number(query.get("wait")) || 0;

if (query.get("failed") === "wrong") {
  problem.textContent = wait ? `That is not the token. Try again in ${wait} s.` : "That is not the token.";
} else if (query.get("failed") === "wait") {
  problem.textContent = `Too many wrong tokens. Try again in ${wait} s.`;
}

const answer = await fetch("api/v1/identity").catch(() => null);
if (answer?.ok) {
  const next = query.get("next") ?? "";
  location.replace(/^(history)?(\?|$)/.test(next) ? `./${next}` : "./");
}
