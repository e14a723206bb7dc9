#!/usr/bin/env node
// {{name}}: one JSON object comes in on standard input, one goes out on standard output (Ductile plugin protocol v2).
// What is written to standard error is told where the call fails.
import { readFileSync } from 'node:fs';

// `result` is for people and the model, `output` for programs. Both are kept in the run's journal.
function answer({ text }) {
  const words = text.split(/\s+/).filter(Boolean);
  if (!words.length) {
    // `retry`: whether the same call may succeed later
    return { status: 'error', error: 'the text has no words', error_class: 'invalid_arguments', retry: false };
  }
  const longest = words.reduce((best, word) => (word.length > best.length ? word : best));
  const counted = words.length === 1 ? '1 word' : `${words.length} words`;
  return {
    status: 'ok',
    result: `${counted}, the longest is ${longest}`,
    output: { words: words.length, longest },
  };
}

const request = JSON.parse(readFileSync(0, 'utf8'));
// `handle` is given its arguments within an event, other commands beside their name.
process.stdout.write(JSON.stringify(answer((request.event ?? request).payload)));
