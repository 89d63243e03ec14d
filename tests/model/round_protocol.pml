/* The round protocol of aligner/protocol as a Promela model: see README.md for what stands for what.
 *
 * One process per rank; each option of its loop is one indivisible event, so that all orders of
 * events are explored: events of odbd's pipeline, of odbd's hub, of the arbiter, of the trainer,
 * of the aligner, and the death of the aligner at each point of a round.
 *
 * World (-D): RANKS 2|3, VIEW_0.. (samples of a rank's view, <= 3), WINDOW, STEPS_MAX (per round),
 *   QUOTA (0: join), EPOCHS, BREAK_0.. (steps after which the trainer leaves the first epoch;
 *   NEVER: does not), CRASHES, LOSSES (exchanges that fail for no reason seen here), HEARTBEATS
 *   (exchanges in which a rank has nothing new to say, over the whole run; ENDLESS: no limit).
 * ERROR=1: the world is one that must end in an error, on all ranks.
 * Defects (-D): see "defects" in model_test.py; each must be found.
 */

#define NEVER 9
#define ENDLESS 255

#ifndef VIEW_2
#define VIEW_2 0
#endif
#ifndef BREAK_0
#define BREAK_0 NEVER
#endif
#ifndef BREAK_1
#define BREAK_1 NEVER
#endif
#ifndef BREAK_2
#define BREAK_2 NEVER
#endif
#ifndef QUOTA
#define QUOTA 0
#endif
#ifndef EPOCHS
#define EPOCHS 1
#endif
#ifndef ERROR
#define ERROR 0
#endif
#define HAS_BREAK (BREAK_0 != NEVER || BREAK_1 != NEVER || BREAK_2 != NEVER)

#define VIEW(r) ((r) == 0 -> VIEW_0 : ((r) == 1 -> VIEW_1 : VIEW_2))
#define BREAK_AT(r) ((r) == 0 -> BREAK_0 : ((r) == 1 -> BREAK_1 : BREAK_2))

/* --- Records ---------------------------------------------------------------------------------
 * An offer with its header in 9 bits, a table of them in one int. DRY is READY without samples. */
#define NOT_READY 0
#define READY 1
#define CLOSING 2
#define RECORD(state, iteration, waits, position, samples) \
  (((state) << 7) | ((iteration) << 6) | ((waits) << 5) | ((position) << 3) | (samples))
#define SAMPLES(record) ((record) & 7)
#define POSITION(record) (((record) >> 3) & 3)
#define WAITS(record) (((record) >> 5) & 1)
#define ITERATION(record) (((record) >> 6) & 1)
#define STATE(record) (((record) >> 7) & 3)
#define ROW(table, r) (((table) >> (9 * (r))) & 511)

/* Digests: of a plan, its samples, the count emitted after it, and whether it ends the epoch. */
#define ABANDON_DIGEST(round) ((1 << 14) | (round))

#define COUNT(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))
#define HIGHEST(set) (((set) & 4) -> 4 : (((set) & 2) -> 2 : ((set) & 1)))

/* --- The aligner of each rank (alignment_machine.h) ------------------------------------------ */
#define NO_MESH 0
#define RESYNC 1
#define HOLD 2
#define OFFER 3
#define PLANNING 4
#define CONFIRM 5

bool alive[RANKS];      /* false: it died, and odbd has not seen it yet */
byte phase[RANKS];
byte mesh[RANKS];       /* generation of its mesh, or the last one it was in */
byte round[RANKS];      /* being agreed on */
bool redo[RANKS];
bool ahead[RANKS];
short redo_offer[RANKS];
short last_digest[RANKS];
bool held[RANKS];       /* its last offer exchange was a heartbeat, waiting for this rank */
short submitted[RANKS]; /* its last record of this round */
byte resume_round[RANKS];    /* what odbd gave with the generation, until the resync table is there */
short resume_stored[RANKS];
short resume_planned[RANKS];

/* The mesh: what a rank put into the exchange at work, and what came out of the last one. Records
 * outlive a rank that dies or leaves, since their bytes may have arrived. */
byte posted[RANKS];     /* 0, RESYNC, OFFER or CONFIRM */
byte posted_mesh[RANKS];
short posted_value[RANKS];
short posted_digest[RANKS];
bool posted_keeps_stored[RANKS];
bool posted_keeps_planned[RANKS];
byte result[RANKS];     /* 0, or the kind of exchange that has an answer for this rank */
int result_value[RANKS];

/* One message: odbd answers GATHERED before RELEASED is sent, and offers anew before the next one. */
#ifdef NO_FENCE
#define PIPE 4
#else
#define PIPE 1
#endif

/* --- odbd of each rank: what the hub keeps (rank_channel.h), and the pipeline ----------------- */
#define NOTHING 0
#define GATHERED 1
#define PLANNED 2
#define RELEASED 3
chan to_odbd[RANKS] = [PIPE] of { byte, byte, byte, int };  /* kind, generation, round, table or digest */

byte opened[RANKS];     /* newest generation that this odbd knows of, and told its aligner */
byte completed[RANKS];  /* last completed round */
short stored_digest[RANKS];
short stored_offer[RANKS];
short planned_offer[RANKS];
short offer[RANKS];     /* as published for completed + 1; 0: none */
byte gathered[RANKS];   /* NOTHING, GATHERED, PLANNED */
byte gathered_mesh[RANKS];
int gathered_table[RANKS];
short gathered_digest[RANKS];

byte window[RANKS];     /* samples, as a set */
byte next_sample[RANKS];
byte got[RANKS];        /* samples that this epoch has given out */
byte steps[RANKS];      /* steps that this epoch has given out */
byte total[RANKS];      /* samples that this epoch has given out, on all ranks, as this rank knows it */
byte epoch[RANKS];
byte epoch_round[RANKS];
bool all_planned[RANKS];
byte taken[RANKS];      /* steps that the trainer took; the first epoch of worlds with breaks only */
bool done[RANKS];       /* the session is closed, on all ranks */

/* --- All --------------------------------------------------------------------------------------- */
byte generation = 1;    /* the arbiter's */
byte crashes_left = CRASHES;
byte losses_left = LOSSES;
byte heartbeats_left = HEARTBEATS;
bool over;              /* every session is closed, or the job has failed */
byte error;             /* what the job failed of, once */
#define DIFFERENT_STEPS 1
#define DIFFERENT_PLANS 2

/* For the claims: what planning alone gives, without ranks, time and messages. Constants once the ranks
 * run, so they are kept out of the states. */
#define ROUNDS_MAX 8
hidden short expected[ROUNDS_MAX];  /* digest of the n-th round of an epoch */
hidden byte expected_got[RANKS];    /* samples that an epoch gives out */
hidden byte expected_steps;         /* steps of an epoch */

/* For use within one event only. */
hidden byte x; hidden byte s; hidden byte n_ready; hidden byte n_closing; hidden byte n_posted;
hidden byte lowest; hidden byte highest; hidden byte closing_at; hidden byte outcome;
hidden short set; hidden short record; hidden short plan_digest; hidden int table;
hidden byte plan_steps; hidden byte plan_total; hidden byte plan_own; hidden byte plan_ends; hidden byte has_posted;
hidden byte conflict; hidden byte iteration_seen; hidden byte m_kind; hidden byte m_mesh;
hidden byte m_round; hidden int m_value; 

#if RANKS == 3
#define ALL(claim) (claim(0) && claim(1) && claim(2))
#define ANY(claim) (claim(0) || claim(1) || claim(2))
#else
#define ALL(claim) (claim(0) && claim(1))
#define ANY(claim) (claim(0) || claim(1))
#endif
#define DONE(r) done[r]

/* --- Planning: pure, as batching/plan.h ---------------------------------------------------------
 * Every sample is a group of its own; the highest ids go first, so that what stays in the window is
 * older than what comes in. Sets plan_*; plan_own is what `r` emits. */
inline make_plan(t, before, r) {
  plan_digest = 0; plan_steps = 0; plan_own = 0; plan_total = before; plan_ends = 0;
  for (x : 0 .. RANKS - 1) {
    set = SAMPLES(ROW(t, x));
    plan_digest = plan_digest | (set << (3 * x));
    plan_steps = (COUNT(set) > plan_steps -> COUNT(set) : plan_steps);
  }
  plan_steps = (plan_steps > STEPS_MAX -> STEPS_MAX : plan_steps);
  plan_ends = (plan_steps == 0);
  record = plan_digest;
  for (s : 1 .. STEPS_MAX) {
    if
    :: s <= plan_steps && !plan_ends ->
      for (x : 0 .. RANKS - 1) {
        set = (record >> (3 * x)) & 7;
        if
        :: set != 0 && (QUOTA == 0 || plan_total < QUOTA) ->
          plan_total++;
          record = record - (HIGHEST(set) << (3 * x));
          plan_own = (x == r -> plan_own | HIGHEST(set) : plan_own)
        :: else
        fi
      }
      plan_ends = (QUOTA != 0 && plan_total >= QUOTA);
      plan_steps = (plan_ends -> s : plan_steps)
    :: else
    fi
  }
  x = 0; s = 0; set = 0;
  plan_digest = plan_digest | (plan_total << 9) | (plan_ends << 13)
}

inline fill(r) {
  do
  :: COUNT(window[r]) < WINDOW && next_sample[r] < VIEW(r) ->
    window[r] = window[r] | (1 << next_sample[r]);
    next_sample[r]++
  :: else -> break
  od
}

/* --- The pipeline (server/pipeline) ------------------------------------------------------------- */
#define LEAVES(r) (HAS_BREAK && epoch[r] == 0 && taken[r] == BREAK_AT(r))
#define CLOSES(r) (epoch[r] == EPOCHS)
#define IN_TRAINED_EPOCH(r) (HAS_BREAK && epoch[r] == 0)
#define TRAINER_WAITS(r) (IN_TRAINED_EPOCH(r) && !LEAVES(r) && taken[r] == steps[r] && !all_planned[r])

inline begin_epoch(r) {
  got[r] = 0; steps[r] = 0; total[r] = 0; window[r] = 0; next_sample[r] = 0; epoch_round[r] = 0;
  all_planned[r] = false;
  epoch[r]++
}

inline end_epoch(r) {
  printf("rank %d: epoch %d is planned to its end, %d steps\n", r, epoch[r], steps[r]);
  assert(got[r] == expected_got[r]);  /* join: each sample; non-join: each of the quota */
  assert(steps[r] == expected_steps);
  if
  :: IN_TRAINED_EPOCH(r) -> all_planned[r] = true
  :: else -> begin_epoch(r)
  fi
}

/* A defect of two halves: the aligner of a rank that is ahead delivers and releases the round again, and
 * odbd plans, answers and gives out what it is told, without a look at the number of the round. */
#ifdef DOUBLE_ON_REDO
#define DOUBLES true
#else
#define DOUBLES false
#endif

/* Rule (a) of effects.h: once odbd has opened a generation it drops what speaks of an older one. What
 * is on its way then, and what is sent later, is as good as gone: taking it away at once gives the
 * same behaviour in fewer states. */
#ifdef NO_FENCE
#define IS_FENCED(r) false
#else
#define IS_FENCED(r) (mesh[r] != opened[r])
#endif

inline send(r, kind, value) {
  if
  :: IS_FENCED(r)
  :: !IS_FENCED(r) ->
    assert(nfull(to_odbd[r]));
    to_odbd[r] ! kind, mesh[r], round[r], value
  fi
}

inline drop_sent(r) {
  do
  :: nempty(to_odbd[r]) -> to_odbd[r] ? m_kind, m_mesh, m_round, m_value
  :: empty(to_odbd[r]) -> break
  od;
  m_kind = 0; m_mesh = 0; m_round = 0; m_value = 0
}

/* The hub's OnReleased, and what the pipeline does then. */
inline release(r, digest) {
  for (x : 0 .. RANKS - 1) {
    /* Nothing is given out before all ranks planned the same; who gave it out already had the same. */
    assert(DOUBLES || (completed[x] == completed[r] -> gathered[x] == PLANNED && gathered_digest[x] == digest
                                                    : completed[x] == completed[r] + 1 && stored_digest[x] == digest))
  }
  x = 0;
  if
  :: digest & (1 << 14) ->
    assert(digest == ABANDON_DIGEST(completed[r] + 1) && (LEAVES(r) || CLOSES(r)));
    for (x : 0 .. RANKS - 1) {  /* all ranks leave after the same step */
      assert(POSITION(ROW(gathered_table[r], x)) == taken[r])
    }
    x = 0;
    if
    :: CLOSES(r) -> done[r] = true
    :: else -> taken[r] = 0; begin_epoch(r)
    fi
  :: else ->
    assert(!CLOSES(r) && !all_planned[r]);
    assert(digest == expected[epoch_round[r]] || DOUBLES);  /* timing never reaches content */
    make_plan(gathered_table[r], total[r], r);
    assert((got[r] & plan_own) == 0);            /* nothing is doubled */
    assert((window[r] & plan_own) == plan_own);
    got[r] = got[r] | plan_own;
    window[r] = window[r] - plan_own;
    steps[r] = steps[r] + plan_steps;
    total[r] = plan_total;
    epoch_round[r]++;
    if
    :: plan_ends -> end_epoch(r)
    :: else
    fi
  fi;
  completed[r]++;
  stored_digest[r] = digest;
  stored_offer[r] = planned_offer[r];
  planned_offer[r] = 0; offer[r] = 0;
  gathered[r] = NOTHING; gathered_mesh[r] = 0; gathered_table[r] = 0; gathered_digest[r] = 0;
  over = over || ALL(DONE)
}

/* --- Exchanges ----------------------------------------------------------------------------------- */
#define IN_EXCHANGE(r) (phase[r] == RESYNC || phase[r] == OFFER || phase[r] == CONFIRM)
#define LEFT(r, g) (mesh[r] > (g) || (mesh[r] == (g) && phase[r] == NO_MESH))
#if RANKS == 3
#define BROKEN(g) (LEFT(0, g) || LEFT(1, g) || LEFT(2, g))
#else
#define BROKEN(g) (LEFT(0, g) || LEFT(1, g))
#endif

/* DecideResync, DecideConfirm; result_value is what follows. */
inline decide_resync() {
  lowest = 255; highest = 0;
  for (x : 0 .. RANKS - 1) {
    lowest = (posted_value[x] < lowest -> posted_value[x] : lowest);
    highest = (posted_value[x] > highest -> posted_value[x] : highest)
  }
  assert(highest <= lowest + 1);
  for (x : 0 .. RANKS - 1) {
    assert(posted_digest[x] == posted_digest[0] || posted_value[x] != posted_value[0]);
    assert(highest == lowest ||
           (posted_value[x] == highest -> posted_keeps_stored[x] : posted_keeps_planned[x]))
  }
#ifdef RESYNC_TAKES_LATEST
  table = ((highest + 1) << 1)
#elif defined(RESYNC_WITHOUT_REDO)
  table = ((lowest + 1) << 1)
#else
  table = ((lowest + 1) << 1) | (highest != lowest)
#endif
}

inline decide_confirm() {
  table = posted_digest[0];
  for (x : 1 .. RANKS - 1) {
    table = (posted_digest[x] == table -> table : -1)
  }
}

inline gather_offers() {
  table = 0;
  for (x : 0 .. RANKS - 1) {
    assert(posted_digest[x] == posted_digest[0]);  /* of the round before */
    table = table | (posted_value[x] << (9 * x))
  }
}

/* Puts a record into the exchange of its mesh. */
inline post(r, kind, value, digest) {
  phase[r] = kind;
  posted[r] = kind; posted_mesh[r] = mesh[r]; posted_value[r] = value; posted_digest[r] = digest;
  has_posted = 1
}

/* The last record completes the exchange, for all. */
inline complete_exchange(r) {
  n_posted = 0;
  for (x : 0 .. RANKS - 1) {
    n_posted = n_posted + (posted[x] != 0 && posted_mesh[x] == mesh[r])
  }
  if
  :: n_posted == RANKS ->
    for (x : 0 .. RANKS - 1) { assert(posted[x] == phase[r]) }  /* in lockstep */
    if
    :: phase[r] == RESYNC -> decide_resync()
    :: phase[r] == CONFIRM -> decide_confirm()
    :: else -> gather_offers()
    fi;
    m_kind = phase[r];
    for (x : 0 .. RANKS - 1) {
      if
      :: phase[x] == m_kind && mesh[x] == mesh[r] -> result[x] = m_kind; result_value[x] = table
      :: else
      fi;
      posted[x] = 0; posted_mesh[x] = 0; posted_value[x] = 0; posted_digest[x] = 0;
      posted_keeps_stored[x] = false; posted_keeps_planned[x] = false
    }
  :: else
  fi;
  x = 0; n_posted = 0; table = 0; lowest = 0; highest = 0; m_kind = 0; has_posted = 0
}

inline take_result(r) { table = result_value[r]; result[r] = 0; result_value[r] = 0 }

/* The arbiter's OnGenerationFailed: only the newest generation can fail. */
inline report_broken(g) {
  if
  :: generation == g -> generation++
  :: else
  fi
}

inline leave_mesh(r) {
  phase[r] = NO_MESH;
  result[r] = 0; result_value[r] = 0; round[r] = 0; redo[r] = false; ahead[r] = false;
  redo_offer[r] = 0; last_digest[r] = 0; held[r] = false; submitted[r] = 0;
  resume_round[r] = 0; resume_stored[r] = 0; resume_planned[r] = 0
}

inline fail_job(what) {
  printf("rank %d: the job fails of %d\n", r, what);
  assert(ERROR && (error == 0 || error == what));
  error = what; over = true
}

/* --- The aligner --------------------------------------------------------------------------------- */
inline hold(r) {
  phase[r] = HOLD
}

/* LocalView::HeadOf: what odbd says of itself, for the round at work. */
#define SAYS_CLOSING(r) (completed[r] + 1 >= round[r] && !done[r] && (LEAVES(r) || CLOSES(r)))
#define SAYS_READY(r) (completed[r] + 1 == round[r] && !LEAVES(r) && !CLOSES(r) && offer[r] != 0)
#define SAID_STATE(r) (SAYS_CLOSING(r) -> CLOSING : (SAYS_READY(r) -> READY : NOT_READY))
#define HEAD_OF(r) \
  RECORD(SAID_STATE(r), epoch[r] & 1, TRAINER_WAITS(r), taken[r], (SAYS_READY(r) -> SAMPLES(offer[r]) : 0))

/* The machine holds back a record with nothing new for a heartbeat_interval, so it may come at any
 * time. One that repeats the last record word for word counts as a heartbeat. */
#define NOTHING_NEW(r) (SAID_STATE(r) == NOT_READY || (held[r] && SAID_STATE(r) == STATE(submitted[r])))
#define HAS_NEWS(r) (!NOTHING_NEW(r) || HEAD_OF(r) != submitted[r])

inline say(r) { record = HEAD_OF(r) }

/* Decide: sets outcome to READY (plan), CLOSING (abandon) or NOT_READY (heartbeat), or conflict. */
inline decide(r, t) {
  n_ready = 0; n_closing = 0; closing_at = 255; conflict = 0; iteration_seen = 255;
  for (x : 0 .. RANKS - 1) {
    record = ROW(t, x);
    n_ready = n_ready + (STATE(record) == READY);
    n_closing = n_closing + (STATE(record) == CLOSING);
    closing_at = (STATE(record) == CLOSING && POSITION(record) < closing_at -> POSITION(record) : closing_at);
    conflict = conflict || (STATE(record) != NOT_READY && iteration_seen != 255 && iteration_seen != ITERATION(record));
    iteration_seen = (STATE(record) != NOT_READY -> ITERATION(record) : iteration_seen)
  }
  for (x : 0 .. RANKS - 1) {
    record = ROW(t, x);
    conflict = conflict || (n_closing > 0 && ITERATION(record) == iteration_seen &&
                            (POSITION(record) > closing_at ||
                             (STATE(record) != CLOSING && WAITS(record) && POSITION(record) == closing_at)))
  }
  outcome = (n_closing == RANKS -> CLOSING : (n_ready == RANKS -> READY : NOT_READY));
  held[r] = (outcome == NOT_READY &&
             (n_closing > 0 -> STATE(ROW(t, r)) != CLOSING : STATE(ROW(t, r)) == NOT_READY));
  x = 0; n_ready = 0; n_closing = 0; closing_at = 0; iteration_seen = 0; record = 0
}

inline die(r) {
  printf("rank %d: the aligner dies in phase %d\n", r, phase[r]);
  crashes_left--;
  alive[r] = false;
  leave_mesh(r)
}
#define MAY_DIE(r) (!over && crashes_left > 0 && alive[r])

proctype rank(byte r) {
  do
  :: atomic {
  if
  :: over -> assert(ERROR == (error != 0)); break

  /* --- the trainer, and odbd's pipeline --- */
  :: d_step { !over && IN_TRAINED_EPOCH(r) && taken[r] < steps[r] && !LEAVES(r) ->
      taken[r]++;
      printf("rank %d: the trainer has taken %d steps\n", r, taken[r])
    }
  :: d_step { !over && all_planned[r] && taken[r] == steps[r] && !LEAVES(r) ->
      printf("rank %d: the trainer has all steps of the epoch\n", r);
      begin_epoch(r)
    }
  :: d_step {
      !over && !CLOSES(r) && !LEAVES(r) && !all_planned[r] && offer[r] == 0 && gathered[r] == NOTHING ->
      fill(r);
      printf("rank %d: odbd publishes an offer of round %d, samples %d\n", r, completed[r] + 1, window[r]);
      offer[r] = RECORD(READY, epoch[r] & 1, 0, 0, window[r])
    }
#ifdef PARTIAL_WINDOW
  :: d_step {
      !over && !CLOSES(r) && !LEAVES(r) && !all_planned[r] && offer[r] == 0 && gathered[r] == NOTHING &&
      window[r] != 0 ->
      offer[r] = RECORD(READY, epoch[r] & 1, 0, 0, window[r])
    }
#endif
  :: d_step {
      gathered[r] == GATHERED ->
      if
      :: STATE(ROW(gathered_table[r], r)) == CLOSING ->
        assert(LEAVES(r) || CLOSES(r));
        plan_digest = ABANDON_DIGEST(completed[r] + 1)
      :: else ->
        assert(DOUBLES || (offer[r] != 0 && SAMPLES(offer[r]) == SAMPLES(ROW(gathered_table[r], r))));
        make_plan(gathered_table[r], total[r], r);
#ifdef DOUBLE_ON_REDO
        plan_digest = (gathered_digest[r] != 0 -> gathered_digest[r] : plan_digest);
#endif
#ifdef DIVERGENCE
        plan_digest = (r == RANKS - 1 && completed[r] == 1 -> plan_digest ^ (1 << 13) : plan_digest)
#endif
      fi;
      printf("rank %d: odbd has planned round %d, digest %d\n", r, completed[r] + 1, plan_digest);
      gathered[r] = PLANNED;
      gathered_digest[r] = plan_digest;
      plan_digest = 0
    }

  /* --- odbd's hub --- */
  :: d_step {
      to_odbd[r] ? m_kind, m_mesh, m_round, m_value ->
      if
      :: m_kind == GATHERED ->
        printf("rank %d: odbd is told what was gathered in round %d, generation %d\n", r, m_round, m_mesh);
        assert(m_round == completed[r] + 1 || DOUBLES);
        planned_offer[r] = ROW(m_value, r);
        gathered[r] = GATHERED; gathered_mesh[r] = m_mesh; gathered_table[r] = m_value;
        gathered_digest[r] = (DOUBLES && m_round == completed[r] -> stored_digest[r] : 0)
      :: m_kind == RELEASED ->
        printf("rank %d: odbd is told to release round %d, generation %d\n", r, m_round, m_mesh);
        assert(m_round == completed[r] + 1 || DOUBLES);
        assert(gathered[r] == PLANNED && gathered_digest[r] == m_value);
        release(r, m_value)
      fi;
      m_kind = 0; m_mesh = 0; m_round = 0; m_value = 0
    }
  :: d_step {
      !over && opened[r] < generation ->
      opened[r] = generation;
      printf("rank %d: odbd opens generation %d\n", r, generation);
#ifndef NO_FENCE
      drop_sent(r);
#endif
#ifdef FORGET_PLANNED
      planned_offer[r] = 0
#endif
    }
  /* The end of the aligner's stream: what has not arrived is lost. A new one is connected. */
  :: d_step {
      !over && !alive[r] ->
      printf("rank %d: the aligner is replaced\n", r);
      drop_sent(r);
      alive[r] = true;
      report_broken(opened[r])
    }

  /* --- the aligner --- */
  :: d_step {
      !over && alive[r] && opened[r] > mesh[r] ->
      leave_mesh(r);
      mesh[r] = opened[r];
      printf("rank %d: joins mesh %d, completed round is %d\n", r, mesh[r], completed[r]);
      resume_round[r] = completed[r];
      resume_stored[r] = stored_offer[r];
      resume_planned[r] = planned_offer[r];
      last_digest[r] = stored_digest[r];
      posted_keeps_stored[r] = (stored_offer[r] != 0);
      posted_keeps_planned[r] = (planned_offer[r] != 0);
      post(r, RESYNC, completed[r], stored_digest[r])
    }
  :: d_step {
      !over && result[r] == RESYNC ->
      take_result(r);
      round[r] = table >> 1;
      redo[r] = table & 1;
      ahead[r] = redo[r] && resume_round[r] == round[r];
      printf("rank %d: after the resync comes round %d, redone %d, ahead %d\n", r, round[r], redo[r], ahead[r]);
      if
      :: redo[r] ->
        redo_offer[r] = (ahead[r] -> resume_stored[r] : resume_planned[r]);
#ifdef REDO_OFFERS_WINDOW
        redo_offer[r] = (ahead[r] -> RECORD(READY, epoch[r] & 1, 0, 0, window[r]) : redo_offer[r]);
#endif
#ifdef REDO_OFFERS_STATE
        say(r);
        redo_offer[r] = (ahead[r] -> redo_offer[r] : record);
#endif
        resume_round[r] = 0; resume_stored[r] = 0; resume_planned[r] = 0;
        post(r, OFFER, redo_offer[r], 0)
      :: else ->
        resume_round[r] = 0; resume_stored[r] = 0; resume_planned[r] = 0;
        hold(r)
      fi;
      table = 0; record = 0
    }
  :: d_step {
      !over && phase[r] == HOLD && (heartbeats_left > 0 || HAS_NEWS(r)) ->
      say(r);
      heartbeats_left = heartbeats_left - (heartbeats_left != ENDLESS && !HAS_NEWS(r));
      submitted[r] = record;
      printf("rank %d: says state %d for round %d, ", r, STATE(record), round[r]);
      printf("samples %d, position %d\n", SAMPLES(record), POSITION(record));
      post(r, OFFER, record, last_digest[r]);
      record = 0
    }
  :: d_step {
      !over && result[r] == OFFER ->
      take_result(r);
      m_value = table;
      decide(r, m_value);
      printf("rank %d: has the offers of round %d: state %d, conflict %d\n", r, round[r], outcome, conflict);
      if
      :: conflict -> fail_job(DIFFERENT_STEPS)
      :: !conflict && outcome == NOT_READY ->
        assert(!redo[r]);  /* what is repeated completes the round */
        hold(r)
#ifdef DOUBLE_ON_REDO
      :: !conflict && outcome != NOT_READY && ahead[r] ->
        ahead[r] = false;
        send(r, GATHERED, m_value);
        phase[r] = PLANNING
#elif defined(AHEAD_WAITS)
      :: !conflict && outcome != NOT_READY && ahead[r] -> phase[r] = PLANNING
#else
      :: !conflict && outcome != NOT_READY && ahead[r] -> post(r, CONFIRM, 0, last_digest[r])
#endif
      :: !conflict && outcome != NOT_READY && !ahead[r] ->
        send(r, GATHERED, m_value);
        phase[r] = PLANNING
      fi;
      conflict = 0; outcome = 0; m_value = 0; table = 0
    }
  :: d_step {
      !over && phase[r] == PLANNING && gathered[r] == PLANNED && gathered_mesh[r] == mesh[r] &&
      (completed[r] + 1 == round[r] || DOUBLES) ->
      printf("rank %d: confirms round %d\n", r, round[r]);
#ifdef RELEASE_BEFORE_CONFIRM
      send(r, RELEASED, gathered_digest[r]);
#endif
      post(r, CONFIRM, 0, gathered_digest[r])
    }
  :: d_step {
      !over && result[r] == CONFIRM ->
      take_result(r);
      m_value = table;
#ifdef IGNORE_DIGESTS
      m_value = (ahead[r] -> last_digest[r] : gathered_digest[r]);
#endif
      printf("rank %d: round %d is confirmed by all, digest %d\n", r, round[r], m_value);
      if
      :: m_value == -1 -> fail_job(DIFFERENT_PLANS)
      :: else ->
#ifndef RELEASE_BEFORE_CONFIRM
        if
        :: !ahead[r] -> send(r, RELEASED, m_value)
        :: else
        fi;
#endif
        last_digest[r] = m_value;
        ahead[r] = false; redo[r] = false; redo_offer[r] = 0;
        held[r] = false; submitted[r] = 0;
        round[r]++;
        hold(r)
      fi;
      m_value = 0; table = 0
    }
  /* Somebody left the mesh: whoever has all the bytes already may still see the exchange complete. */
  :: d_step { !over && IN_EXCHANGE(r) && BROKEN(mesh[r]) ->
      printf("rank %d: mesh %d is broken\n", r, mesh[r]);
      leave_mesh(r);
      report_broken(mesh[r])
    }
  :: d_step {
      !over && losses_left > 0 && IN_EXCHANGE(r) ->
      losses_left--;
      printf("rank %d: loses an exchange of mesh %d\n", r, mesh[r]);
      leave_mesh(r);
      report_broken(mesh[r])
    }

  /* --- its death, point by point, so that spin says which of them it never came to --- */
  :: MAY_DIE(r) && phase[r] == NO_MESH && opened[r] > mesh[r] -> d_step { die(r) }
  :: MAY_DIE(r) && phase[r] == RESYNC && result[r] == 0 -> d_step { die(r) }
  :: MAY_DIE(r) && result[r] == RESYNC -> d_step { die(r) }
  :: MAY_DIE(r) && phase[r] == HOLD && empty(to_odbd[r]) -> d_step { die(r) }      /* before it offers */
  :: MAY_DIE(r) && phase[r] == OFFER && result[r] == 0 -> d_step { die(r) }        /* offered */
  :: MAY_DIE(r) && result[r] == OFFER -> d_step { die(r) }                         /* gathered */
  :: MAY_DIE(r) && phase[r] == PLANNING && nempty(to_odbd[r]) -> d_step { die(r) } /* delivered */
  :: MAY_DIE(r) && phase[r] == PLANNING && empty(to_odbd[r]) && gathered[r] == GATHERED -> d_step { die(r) }
  :: MAY_DIE(r) && phase[r] == PLANNING && gathered[r] == PLANNED -> d_step { die(r) }  /* planned */
  :: MAY_DIE(r) && phase[r] == CONFIRM && result[r] == 0 -> d_step { die(r) }      /* confirmed */
  :: MAY_DIE(r) && result[r] == CONFIRM -> d_step { die(r) }                       /* agreed */
  :: MAY_DIE(r) && phase[r] == HOLD && nempty(to_odbd[r]) -> d_step { die(r) }     /* released */
  fi;
  if
  :: has_posted -> d_step { complete_exchange(r) }
  :: else
  fi
  }
  od
}

/* One epoch planned in place, without ranks, time and messages. Uses the variables of rank 0 and up. */
inline plan_alone() {
  /* A search for cycles takes this step more than once, and does not undo what is hidden. */
  expected_steps = 0; n_ready = 0;
  for (x : 0 .. RANKS - 1) { expected_got[x] = 0 }
  do
  :: true ->
    m_value = 0;
    for (x : 0 .. RANKS - 1) {
      fill(x);
      m_value = m_value | (window[x] << (9 * x))
    }
    m_round = total[0];
    for (m_mesh : 0 .. RANKS - 1) {
      make_plan(m_value, m_round, m_mesh);
      assert((expected_got[m_mesh] & plan_own) == 0 && n_ready < ROUNDS_MAX);
      window[m_mesh] = window[m_mesh] - plan_own;
      expected_got[m_mesh] = expected_got[m_mesh] | plan_own
    }
    total[0] = plan_total;
    expected_steps = expected_steps + plan_steps;
    expected[n_ready] = plan_digest;
    n_ready++;
    if
    :: plan_ends -> break
    :: else
    fi
  od;
  n_ready = 0;
  for (x : 0 .. RANKS - 1) {
    n_ready = n_ready + COUNT(expected_got[x]);
    assert(QUOTA != 0 || expected_got[x] == (1 << VIEW(x)) - 1);  /* join: nothing is lost */
    window[x] = 0; next_sample[x] = 0
  }
  assert(QUOTA == 0 || n_ready == QUOTA);  /* non-join: the quota, exactly */
  total[0] = 0; n_ready = 0; m_value = 0; m_round = 0; m_mesh = 0; x = 0
}

init {
  d_step {
    plan_alone();
    for (x : 0 .. RANKS - 1) { alive[x] = true; opened[x] = 1 }
    x = 0
  }
  atomic {
    run rank(0);
    run rank(1);
#if RANKS == 3
    run rank(2)
#endif
  }
}
