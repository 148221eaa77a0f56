"""The verbs, one module each: functions over a frozen `Lake`. Here names, the recent and the past meet."""
