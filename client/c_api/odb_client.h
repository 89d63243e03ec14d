/* The C interface of odbd's client, in libodb_client.so. C99, no dependencies.
 *
 *   odb_client* client = odb_client_new();
 *   if (odb_client_open(client) != ODB_OK) die(odb_last_error(client));
 *   odb_client_start_epoch(client, 0, 0, 0);
 *   odb_step* step;
 *   int rc;
 *   while ((rc = odb_client_next(client, 100, &step)) != ODB_END) {
 *     if (rc == ODB_TIMEOUT) continue;            (look at signals, then wait on)
 *     if (rc != ODB_OK) die(odb_last_error(client));
 *     ... odb_step_get_tensor(step, i, &tensor) ...
 *     odb_step_release(step);
 *   }
 *   odb_client_free(client);
 *
 * Threads: one thread at a time uses a client; steps may be read and released by any thread.
 * Fork: in a forked child every call with a client fails with ODB_FAILED_PRECONDITION, and
 *   odb_client_free and odb_step_release do nothing; the parent is not affected.
 * Errors: functions that return int return one of the codes below; after a negative one
 *   odb_last_error(client) is one sentence that says what happened.
 * Compatibility: functions and fields are only added. Structs that the library fills are passed
 * with their size, so that a program and a library of different age agree on what both know.
 */
#ifndef ODB_CLIENT_C_API_ODB_CLIENT_H_
#define ODB_CLIENT_C_API_ODB_CLIENT_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ODB_API __attribute__((visibility("default")))
#else
#define ODB_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct odb_client odb_client;
typedef struct odb_step odb_step;

/* Result codes. Negative ones are errors: what the caller should do. */
enum {
  ODB_OK = 0,
  ODB_END = 1,                  /* the iteration is over */
  ODB_TIMEOUT = 2,              /* nothing came yet; call again */
  ODB_INVALID_ARGUMENT = -3,    /* fix the argument */
  ODB_DEADLINE_EXCEEDED = -4,   /* the daemon is slow */
  ODB_NOT_FOUND = -5,           /* no daemon at the socket */
  ODB_PERMISSION_DENIED = -7,   /* the socket is another user's */
  ODB_RESOURCE_EXHAUSTED = -8,  /* a stated limit was hit */
  ODB_FAILED_PRECONDITION = -9, /* calls in a wrong order, closed, forked, superseded */
  ODB_ABORTED = -10,            /* the session ended, as another rank's did */
  ODB_OUT_OF_RANGE = -11,
  ODB_INTERNAL = -13,    /* a fault of odbd */
  ODB_UNAVAILABLE = -14, /* the daemon is gone, or not there yet */
  ODB_DATA_LOSS = -15
  /* other negative values: the negated code of absl::Status */
};

/* Element types. */
enum {
  ODB_INT64 = 1,
  ODB_INT32 = 2,
  ODB_BOOL = 3,
  ODB_UINT8 = 4,
  ODB_FLOAT32 = 5,
  ODB_FLOAT64 = 6,
  ODB_FLOAT16 = 7,
  ODB_BFLOAT16 = 8
};

/* "0.1.0". */
ODB_API const char* odb_version(void);

/* --- Client ------------------------------------------------------------------------------- */

/* A client that is not attached. Never NULL. */
ODB_API odb_client* odb_client_new(void);

/* Closes and frees a client; NULL is allowed. Steps it gave stay valid until they are released. */
ODB_API void odb_client_free(odb_client* client);

/* Sets an option before odb_client_open; what is not set comes from the environment (ODB_SOCKET,
 * RANK, WORLD_SIZE, ...) or has a default:
 *   socket (a path, or tcp://host:port of a daemon whose memory cannot be shared; then job_token,
 *   default $ODB_CLIENT_TOKEN, is what it wants to see)
 *   stream, idle (stand-in | skip | raw), transport (auto | ring | stream), prefetch, client_name
 *   pin (auto | on | off), device (CUDA's number of the GPU that this process trains on)
 *   rank, world_size, local_rank, local_world_size, group_rank, dp_rank, dp_size, replica, replicas
 *   connect_timeout_ms, open_timeout_ms, reattach_timeout_ms, close_timeout_ms
 * ODB_INVALID_ARGUMENT: no such option, or not a number where one is wanted. */
ODB_API int odb_client_set_option(odb_client* client, const char* name, const char* value);

/* Attaches; blocks for at most connect_timeout_ms + 2 x open_timeout_ms. */
ODB_API int odb_client_open(odb_client* client);

/* Ends the session: tells the daemon, waits at most close_timeout_ms. Calls after it fail. Closing
 * again is ODB_OK. */
ODB_API int odb_client_close(odb_client* client);

/* The last error of a call with this client, or "". Valid until the next call with it. */
ODB_API const char* odb_last_error(const odb_client* client);

/* Why no step comes, in the daemon's words, or "". Valid until the next call with the client. */
ODB_API const char* odb_client_waiting_text(odb_client* client);

typedef struct odb_session_info {
  uint64_t session_id;
  uint64_t arena_bytes;
  const char* arena; /* where the arena is mapped, readable and writable; over TCP NULL, with 0
                        bytes: each step has memory of its own */
  int64_t daemon_pid;
  int64_t records;         /* of an epoch before quarantine, over all ranks */
  int64_t estimated_steps; /* of an epoch; 0 = no estimate */
  int32_t accumulation;    /* steps per optimizer step */
  int32_t pad_token_id;
  int32_t rank;
  int32_t dp_rank;
  int32_t dp_size;
  int32_t reserved;
  const char* loss_scale; /* loss_tokens | tokens | off; lives as long as the client */
  const char* socket;     /* lives as long as the client */
  const char* transport;  /* ring | stream: how step messages travel */
} odb_session_info;

/* What is known since odb_client_open. Writes at most `size` bytes of *info, sizeof(*info)
 * normally. */
ODB_API int odb_client_session(odb_client* client, odb_session_info* info, size_t size);

/* Whether the arena is pinned for the GPU (registered with CUDA): 1 or 0. It is asked for by
 * pin = on, or by naming a device with pin = auto. */
ODB_API int odb_client_pinned(odb_client* client);

/* Why it is not although it was asked for, in one sentence; "" if it is, or if nobody asked. The
 * arena is then ordinary memory. Lives as long as the client. */
ODB_API const char* odb_client_why_not_pinned(odb_client* client);

/* The i-th of the largest shapes that can come, as a step in memory of its own, for the caller to
 * release: run all of them, from 0, before the first step, and a model that is too large runs out
 * of memory there. Valid values, step_id 0, loss_scale 0, no samples; the same on all ranks.
 * ODB_OK, ODB_END if there is no i-th (*step is NULL), or an error. */
ODB_API int odb_client_probe(odb_client* client, int32_t i, odb_step** step);

/* Begins an iteration; one that still runs is ended first. max_steps and max_samples end it early,
 * on every rank that passes the same at the same step; 0 = no limit. */
ODB_API int odb_client_start_epoch(odb_client* client, int64_t epoch, int64_t max_steps,
                                   int64_t max_samples);

/* The next step into *step, for the caller to release. Waits at most timeout_ms (< 0: for ever).
 * ODB_OK, ODB_END (*step is NULL), ODB_TIMEOUT (odb_last_error says why nothing comes), or an
 * error. */
ODB_API int odb_client_next(odb_client* client, int64_t timeout_ms, odb_step** step);

typedef struct odb_waits {
  int64_t total_us;   /* for all steps */
  int64_t longest_us; /* for the one that took longest */
} odb_waits;

/* What was spent in odb_client_next for the steps of the running iteration, or the last one. The
 * daemon's status shows it as well. Writes at most `size` bytes of *waits. */
ODB_API int odb_client_waits(odb_client* client, odb_waits* waits, size_t size);

/* The step that the next odb_client_next gives, into *step, for the caller to release, if it is
 * here already: to copy it to a device while the one before is in use. It is not taken by that:
 * odb_client_next gives it too, and if the iteration ends before, its memory is used again at once.
 * Does not wait. ODB_OK, ODB_TIMEOUT (*step is NULL; nothing is here yet, or the iteration ends),
 * or an error. */
ODB_API int odb_client_peek(odb_client* client, odb_step** step);

/* Leaves the iteration after the last step that odb_client_next gave. ODB_OK if none runs. */
ODB_API int odb_client_end_iteration(odb_client* client);

/* --- Steps -------------------------------------------------------------------------------- */

typedef struct odb_counts {
  int64_t samples;
  int64_t tokens;        /* real tokens */
  int64_t padded_tokens; /* with padding */
  int64_t loss_tokens;   /* labels that count */
  int64_t vision_load;
} odb_counts;

typedef struct odb_step_info {
  int64_t step_id; /* counts the steps of the session */
  int64_t epoch;
  int64_t iterator; /* counts the iterations of the session */
  int64_t index;    /* position in the iteration, from 0; equal on all ranks */
  int64_t round;
  int32_t idle; /* this rank has no samples here */
  int32_t num_tensors;
  int32_t num_samples;
  int32_t window_steps; /* of the accumulation window */
  int32_t window_index; /* position in it, from 0 */
  uint32_t modality_mask;
  int64_t dp_size;
  double loss_scale;
  int64_t emitted_samples; /* of the iteration, all ranks, up to and with this step */
  int64_t total_samples;   /* of the epoch, all ranks */
  odb_counts local;        /* this rank's part of this step */
  odb_counts global;       /* all ranks */
  odb_counts window_local; /* over the accumulation window */
  odb_counts window_global;
  int64_t waited_us; /* spent in odb_client_next for this step, over all calls that it took */
} odb_step_info;

/* Writes at most `size` bytes of *info, sizeof(*info) normally. */
ODB_API int odb_step_get_info(const odb_step* step, odb_step_info* info, size_t size);

typedef struct odb_tensor {
  const char* name; /* lives as long as the step, as the rest */
  int32_t dtype;
  int32_t ndim;
  const int64_t* shape;
  void* data; /* in the arena or, over TCP, in the step's own memory; row-major, 64-byte aligned;
                 those of idle steps are shared: read only */
  int64_t bytes;
} odb_tensor;

/* ODB_OUT_OF_RANGE unless 0 <= i < num_tensors. */
ODB_API int odb_step_get_tensor(const odb_step* step, int32_t i, odb_tensor* tensor, size_t size);

typedef struct odb_sample_id {
  int64_t key; /* offset or index of the record in its source */
  int32_t source;
  int32_t reserved;
} odb_sample_id;

/* Copies up to `capacity` ids of the step's samples; returns how many the step has. */
ODB_API int32_t odb_step_sample_ids(const odb_step* step, odb_sample_id* ids, int32_t capacity);

/* All of the above in one call, for programs to which a call is dear: *info, up to `max_tensors`
 * tensors, `tensor_size` bytes each, and up to `max_ids` ids. How many the step has stands in
 * info->num_tensors and info->num_samples; sizes as above. */
ODB_API int odb_step_describe(const odb_step* step, odb_step_info* info, size_t info_size,
                              odb_tensor* tensors, int32_t max_tensors, size_t tensor_size,
                              odb_sample_id* ids, int32_t max_ids);

/* 1 if the step's tensors are a short valid sample that stands in for none (an idle step, option
 * idle = stand-in): to be trained on with loss_scale, which is 0. Else 0. */
ODB_API int odb_step_is_stand_in(const odb_step* step);

/* Gives the step up: its memory goes back to the daemon. Once per step, any thread, also after the
 * client was closed or freed; NULL is allowed. */
ODB_API void odb_step_release(odb_step* step);

/* --- Loss ----------------------------------------------------------------------------------- */

enum {
  ODB_LOSS_MEAN = 0,     /* the loss is the mean over this step's local tokens that count */
  ODB_LOSS_SUM = 1,      /* their sum */
  ODB_LOSS_NUM_ITEMS = 2 /* their sum / window_global (num_items_in_batch) */
};

enum {
  ODB_WEIGHT_LOSS_TOKENS = 0, /* labels that count */
  ODB_WEIGHT_TOKENS = 1       /* all real tokens */
};

/* The factor for the loss of one step with which the optimizer's gradient is the token mean over
 * all ranks and the accumulation window. With n = local tokens that count, N = those of
 * window_global, D = dp_size if the ranks' gradients are averaged, else 1, K = divided_by (what the
 * framework divides each loss by; 1 = nothing): mean: D * K * n / N      sum: D * K / N num_items:
 * D * K      0 for an idle step ODB_INVALID_ARGUMENT for an unknown constant or divided_by < 1. */
ODB_API int odb_loss_scale(const odb_step_info* info, int32_t reduction, int32_t weight,
                           int32_t averaged_over_ranks, int32_t divided_by, double* scale);

#ifdef __cplusplus
}
#endif

#endif /* ODB_CLIENT_C_API_ODB_CLIENT_H_ */
