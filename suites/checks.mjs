// A table of checks, run over subjects one after the other; the rows go to the file that SHEPHERD_SUITE_ROWS names.
//
//   run({subject: ...}, {check: async (subject) => ...})
//
// Each check gives a row. One that throws has failed. `notApplicable` throws, too: its text becomes the row's reason;
// without a text the check has failed.

import { writeFileSync } from 'node:fs';

const CHECK_MS = 60_000;

class NotApplicable extends Error {}

export function notApplicable(why) {
  if (typeof why !== 'string' || !why.trim()) throw new Error('notApplicable() has no reason');
  throw new NotApplicable(why);
}

export async function run(subjects, checks) {
  const rows = [];
  const only = process.env.SHEPHERD_SUITE_ONLY ?? '';
  for (const [subjectName, subject] of Object.entries(subjects)) {
    for (const [checkName, check] of Object.entries(checks)) {
      const name = subjectName ? `${subjectName}: ${checkName}` : checkName;
      if (!name.includes(only)) continue;
      let row = [name, 'passed', ''];
      try {
        await within(Promise.resolve(subject).then(check), CHECK_MS);
      } catch (error) {
        row = error instanceof NotApplicable ? [name, 'not applicable', error.message] : [name, 'failed', words(error)];
      }
      if (row[1] === 'failed') console.log(row[0], row[2]);
      rows.push(row);
    }
  }
  writeFileSync(process.env.SHEPHERD_SUITE_ROWS, JSON.stringify(rows));
  process.exit(0); // a connection that a failed check left open must not hold the process
}

function within(promise, ms) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${ms / 1000} s`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function words(error) {
  const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return text.split(/\s+/).join(' ').slice(0, 400);
}
