import { facts } from "./facts.js";
import { head } from "./head.js";
import { jobs } from "./jobs.js";
import { leases } from "./leases.js";
import { timeline } from "./timeline.js";
import { workers } from "./workers.js";

const part = (id) => document.getElementById(id);

facts(part("facts"));
workers(part("workers"));
leases(part("leases"));
jobs(part("jobs"));
timeline(part("timeline"));
head("live");
