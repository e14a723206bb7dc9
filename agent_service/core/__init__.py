"""Every rule about runs, and nothing else: values in, values out. No clock, no I/O, no randomness, no logging.

In the order of reading:
`waiting`, `events`   the states of a run, and what can happen to it
`decide`              the rules, and the table that says what each event does in each state
`state`, `effects`    all that is known of a run, and what is to be done after a decision
`asking`, `thinking`  calls of the model with their budgets and outages, and what its replies lead to (`phases`)
`acting`, `results`   tools: requests and retries, and what their results lead to (which result it is: `correlate`)
`endings`             how a run ends or pauses; `remedies`: what a person is told to do then
Beside them: `limits`, `notes` (what a prompt shows of past steps), `announcing` (what a run owes the bus) and
`replacing` (a fast copy).
"""
