import { events } from "./events.js";
import { head } from "./head.js";
import { timeline } from "./timeline.js";

timeline(document.getElementById("timeline"));
events(document.getElementById("events"));
head("history");
