/* Failback with failback="after-drain", checked exhaustively by SPIN (tests/model/test_failback.py).
 *
 * Each path has one session, whose messages 1, 2, … one application sends in turn: the next one
 * when the last one was acknowledged. All paths share the backlog queues of the pairing; the session
 * of a path has a queue of its own. README.md lists which part mirrors which function.
 *
 * order:     a message is delivered only when all older ones of its session were delivered. What
 *            counts is the first copy of a message.
 * progress:  in the end all messages are delivered, all paths are healthy and the backlog is none_shown,
 *            provided that the primary is back, a syphon runs, and faults are bounded.
 */
#ifndef PATHS
#define PATHS 2
#endif
#ifndef MESSAGES
#define MESSAGES 2
#endif
#ifndef OTHER_MESSAGES
#define OTHER_MESSAGES 1 /* of the second path: its part is to use the same backlog */
#endif
#ifndef SYPHONS
#define SYPHONS 1
#endif
#ifndef EMPTY_PEEKS
#define EMPTY_PEEKS 2    /* peeks in a row that must show nothing before a path is healthy */
#endif

/* The number of faults of each kind in one run. */
#ifndef OUTAGES
#define OUTAGES 1
#endif
#ifndef FAILOVERS
#define FAILOVERS 1      /* failovers because of other senders of a path, whether or not it is down */
#endif
#ifndef EXPIRED_HOLDS
#define EXPIRED_HOLDS 1
#endif
#ifndef KILLS
#define KILLS 1          /* of a syphon */
#endif
#ifndef LOST_LOCKS
#define LOST_LOCKS 0     /* locks that expire while their syphon lives, because it was frozen */
#endif
#ifndef LOST_ANSWERS
#define LOST_ANSWERS 1   /* the primary accepts a message, and the sender or the syphon sees an error */
#endif
#ifndef FAILED_PEEKS
#define FAILED_PEEKS 0
#endif
#ifndef MISSED_MESSAGES
#define MISSED_MESSAGES 0 /* peeks that do not show what is in a queue, never two in a row */
#endif

#define HEALTHY  0       /* or suspect: sends go to the primary in both states */
#define FAILOVER 1
#define DRAINING 2

#define NO_HOLD 0
#define HELD    1
#define EXPIRED 2        /* the time of the hold is over, and no peek has ended since then */

#define ABSENT   0       /* not in the backlog, or completed */
#define STORED   1       /* available to receivers */
#define ORPHANED 2       /* locked by a syphon that was killed */
#define LOCKED   3       /* LOCKED + s: locked by syphon s */

#define last(p) ((p) == 0 -> MESSAGES : OTHER_MESSAGES)
#define SLOTS (MESSAGES + 1)                    /* slot 0 is not used */
#define slot(p, m) backlog[(p) * SLOTS + (m)]

bool primary_up = true;
byte status[PATHS];
byte hold[PATHS];
byte in_flight[PATHS];
short empty_peeks[PATHS];
byte backlog[PATHS * SLOTS];
byte delivered[PATHS];                          /* the last message of the session at the primary */
byte sent[PATHS];                               /* messages that were acknowledged */

byte outages = OUTAGES, failovers = FAILOVERS, expired_holds = EXPIRED_HOLDS, kills = KILLS;
byte lost_locks = LOST_LOCKS, lost_answers = LOST_ANSWERS, failed_peeks = FAILED_PEEKS;
byte missed_messages = MISSED_MESSAGES;

/* The primary accepts a message. A message that was delivered before is a duplicate. */
inline deliver(p, m) {
  assert(m <= delivered[p] + 1);
  if
  :: m == delivered[p] + 1 -> delivered[p] = m
  :: else
  fi
}

inline become(p, new_status) {
  status[p] = new_status;
  hold[p] = NO_HOLD
}

/* The application and the paired sender of a path. */
proctype Sender(byte p) {
  byte m = 1;

call:
  atomic {                                      /* route */
    sent[p] = m - 1;
    if
    :: m > last(p) -> goto end
    :: m <= last(p) && status[p] == HEALTHY -> goto to_primary
#ifdef FORGET_HOLD
    :: m <= last(p) && status[p] != HEALTHY ->
#else
    :: m <= last(p) && status[p] != HEALTHY && hold[p] != HELD ->
#endif
       in_flight[p]++;
       goto to_backlog
    fi                                          /* otherwise the call waits for a change */
  };

to_primary:
  atomic {
    if
    :: primary_up -> deliver(p, m); goto acknowledged
    :: primary_up && lost_answers > 0 -> lost_answers--; deliver(p, m)
    :: !primary_up
    fi
  };
  atomic {                                      /* failed */
    if
    :: status[p] != HEALTHY ->                  /* join the failover */
#ifndef FORGET_JOINED_FAILOVER
       empty_peeks[p] = -1;
#endif
       in_flight[p]++
    :: status[p] == HEALTHY -> goto call        /* the application gets the error, and tries again */
    :: status[p] == HEALTHY ->                  /* failover_interval=0 */
       become(p, FAILOVER);
       in_flight[p]++
    fi
  };

to_backlog:
  slot(p, m) = STORED;
  in_flight[p]--;

acknowledged:
  m++;
  goto call;

end:
  skip
}

/* The recovery of a path. */
proctype Recovery(byte p) {
  byte q, i;
  bool idle, none_shown, missed, missed_before;

#ifdef FAIL_BACK_AT_ONCE
#define after_ping HEALTHY
#else
#define after_ping DRAINING
#endif

end:
  do
  :: status[p] == FAILOVER && primary_up ->     /* a ping, and its answer */
     atomic { become(p, after_ping); empty_peeks[p] = 0 }
  :: status[p] == DRAINING ->
     atomic {
#ifdef FORGET_IN_FLIGHT
       idle = true;
#else
       idle = in_flight[p] == 0;
#endif
       none_shown = true;
       missed_before = missed; missed = false;
       q = 0
     };
     do                                         /* the queues are peeked one after the other */
     :: q < PATHS ->
        atomic {
          i = 1;
          do
          :: i <= last(q) && slot(q, i) == ABSENT -> i++
          :: else -> break
          od;
          if
          :: i <= last(q) -> none_shown = false
          :: i <= last(q) && q != p             /* it was stored after the hold began */
          :: i <= last(q) && missed_messages > 0 && !missed_before && !missed ->
             missed_messages--; missed = true
          :: i > last(q)
          fi;
          i = 0;
          q++
        }
     :: q == PATHS && failed_peeks > 0 ->
        atomic { failed_peeks--; hold[p] = NO_HOLD; break }
     :: q == PATHS ->
        atomic {                                /* peeked */
          q = 0;
          if
          :: status[p] != DRAINING
          :: status[p] == DRAINING && hold[p] == NO_HOLD ->
             empty_peeks[p] = 0;
             if
             :: hold[p] = HELD;                 /* the backlog is small */
                do                              /* the other paths join the hold */
                :: q < PATHS ->
                   if
                   :: status[q] == DRAINING && hold[q] == NO_HOLD ->
                      hold[q] = HELD;
#ifndef FORGET_JOINED_HOLD
                      empty_peeks[q] = -1
#endif
                   :: else
                   fi;
                   q++
                :: else -> q = 0; break
                od
             :: !none_shown                        /* the backlog is not small */
             fi
          :: status[p] == DRAINING && hold[p] == EXPIRED ->
#ifndef KEEP_EXPIRED_HOLD
             hold[p] = NO_HOLD
#else
             skip
#endif
          :: status[p] == DRAINING && hold[p] == HELD ->
             if
             :: none_shown && idle -> empty_peeks[p]++
             :: else -> empty_peeks[p] = 0
             fi;
             if
             :: empty_peeks[p] == EMPTY_PEEKS -> become(p, HEALTHY); empty_peeks[p] = 0
             :: else
             fi
          fi;
          idle = false; none_shown = false;
          break
        }
     od
  od
}

/* A syphon, which is started again after it was killed. */
proctype Syphon(byte s) {
  byte p, m, older;

end:
  atomic {                                      /* receive: lock the oldest available message */
    if
    :: slot(0, 1) == STORED -> p = 0; m = 1
    :: slot(0, 1) != STORED && slot(0, 2) == STORED -> p = 0; m = 2
#if MESSAGES > 2
    :: slot(0, 1) != STORED && slot(0, 2) != STORED && slot(0, 3) == STORED -> p = 0; m = 3
#endif
#if PATHS > 1
    :: slot(1, 1) == STORED -> p = 1; m = 1
#if OTHER_MESSAGES > 1
    :: slot(1, 1) != STORED && slot(1, 2) == STORED -> p = 1; m = 2
#endif
#endif
    fi;
    slot(p, m) = LOCKED + s
  };

  atomic {                                      /* peek below the message, after the receive */
    older = 1;
    do
    :: older < m && slot(p, older) == ABSENT -> older++
    :: else -> break
    od;
#ifdef PASS_LOCKED
    older = m;
#endif
    if
    :: older < m -> older = 0; goto abandon
    :: else -> older = 0
    fi
  };
#ifdef COMPLETE_FIRST
  atomic { if :: slot(p, m) == LOCKED + s -> slot(p, m) = ABSENT :: else fi };
#endif
  atomic {
    if
    :: primary_up -> deliver(p, m)
    :: primary_up && lost_answers > 0 -> lost_answers--; deliver(p, m); goto abandon
    :: !primary_up -> goto abandon
    :: kills > 0 -> goto killed
    fi
  };
  atomic {                                      /* complete, unless the lock was lost */
    if
    :: slot(p, m) == LOCKED + s -> slot(p, m) = ABSENT
    :: slot(p, m) != LOCKED + s
    :: kills > 0 -> goto killed
    fi;
    p = 0; m = 0;
    goto end
  };

abandon:
  atomic {
    if
    :: slot(p, m) == LOCKED + s -> slot(p, m) = STORED
    :: else
    fi;
    p = 0; m = 0;
    goto end
  };

killed:
  atomic {
    kills--;
    if
    :: slot(p, m) == LOCKED + s -> slot(p, m) = ORPHANED
    :: else
    fi;
    p = 0; m = 0;
    goto end
  }
}

/* Outages of the primary, failovers because of other senders, and the passing of time. */
proctype Environment() {
  byte p, m;

end:
  do
  :: primary_up && outages > 0 -> outages--; primary_up = false
  :: !primary_up -> primary_up = true
  :: failovers > 0 && status[0] == HEALTHY && sent[0] < last(0) ->
     atomic { if :: status[0] == HEALTHY -> failovers--; become(0, FAILOVER) :: else fi }
#if PATHS > 1
  :: failovers > 0 && status[1] == HEALTHY && sent[1] < last(1) ->
     atomic { if :: status[1] == HEALTHY -> failovers--; become(1, FAILOVER) :: else fi }
#endif
  :: expired_holds > 0 && hold[0] == HELD ->
     atomic { if :: hold[0] == HELD -> expired_holds--; hold[0] = EXPIRED :: else fi }
#if PATHS > 1
  :: expired_holds > 0 && hold[1] == HELD ->
     atomic { if :: hold[1] == HELD -> expired_holds--; hold[1] = EXPIRED :: else fi }
#endif
  od
}

/* Locks expire: those of a killed syphon always, those of a frozen one as often as is allowed. */
proctype Locks() {
end:
  do
  :: atomic { slot(0, 1) == ORPHANED -> slot(0, 1) = STORED }
  :: atomic { slot(0, 2) == ORPHANED -> slot(0, 2) = STORED }
  :: atomic { slot(0, 1) > ORPHANED && lost_locks > 0 -> lost_locks--; slot(0, 1) = STORED }
  :: atomic { slot(0, 2) > ORPHANED && lost_locks > 0 -> lost_locks--; slot(0, 2) = STORED }
#if MESSAGES > 2
  :: atomic { slot(0, 3) == ORPHANED -> slot(0, 3) = STORED }
  :: atomic { slot(0, 3) > ORPHANED && lost_locks > 0 -> lost_locks--; slot(0, 3) = STORED }
#endif
#if PATHS > 1
  :: atomic { slot(1, 1) == ORPHANED -> slot(1, 1) = STORED }
#if OTHER_MESSAGES > 1
  :: atomic { slot(1, 2) == ORPHANED -> slot(1, 2) = STORED }
#endif
#endif
  od
}

init {
  atomic {
    run Environment();
    run Locks();
    run Sender(0);
    run Recovery(0);
#if PATHS > 1
    run Sender(1);
    run Recovery(1);
#endif
    run Syphon(0);
#if SYPHONS > 1
    run Syphon(1);
#endif
  }
}

#define recovered(p, last) (delivered[p] == last && sent[p] == last && status[p] == HEALTHY)
#if PATHS > 1
#define all_recovered (recovered(0, MESSAGES) && recovered(1, OTHER_MESSAGES))
#else
#define all_recovered recovered(0, MESSAGES)
#endif

#ifdef CHECK_PROGRESS
ltl progress { <> [] all_recovered }
#endif
