/* A trainer in C, against a fake daemon: the header is C99 and the library does what it says. */
#include <stdio.h>
#include <string.h>

#include "client/c_api/odb_client.h"

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) {                                              \
      printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                      \
    }                                                                \
  } while (0)

static int check_misuse(void) {
  odb_client* client = odb_client_new();
  odb_step* step;
  CHECK(odb_client_next(client, 0, &step) == ODB_FAILED_PRECONDITION);
  CHECK(strstr(odb_last_error(client), "odb_client_open") != NULL);
  CHECK(odb_client_set_option(client, "sockte", "/x") == ODB_INVALID_ARGUMENT);
  CHECK(strstr(odb_last_error(client), "no option \"sockte\"") != NULL);
  CHECK(odb_client_set_option(client, "prefetch", "many") == ODB_INVALID_ARGUMENT);
  CHECK(strstr(odb_last_error(client), "option prefetch") != NULL);
  CHECK(odb_client_set_option(client, "transport", "pigeon") == ODB_INVALID_ARGUMENT);
  CHECK(strstr(odb_last_error(client), "option transport: transport must be") != NULL);
  CHECK(odb_client_set_option(client, "pin", "maybe") == ODB_INVALID_ARGUMENT);
  CHECK(strstr(odb_last_error(client), "option pin: pin must be auto, on or off") != NULL);
  CHECK(odb_client_pinned(client) == 0);
  CHECK(strcmp(odb_client_why_not_pinned(client), "") == 0);
  CHECK(odb_client_peek(client, &step) == ODB_FAILED_PRECONDITION);
  CHECK(odb_client_set_option(client, "socket", "/nonexistent/odbd.sock") == ODB_OK);
  CHECK(odb_client_set_option(client, "connect_timeout_ms", "10") == ODB_OK);
  CHECK(odb_client_open(client) == ODB_NOT_FOUND);
  CHECK(strstr(odb_last_error(client), "/nonexistent/odbd.sock") != NULL);
  CHECK(odb_client_close(client) == ODB_OK);
  odb_client_free(client);
  odb_client_free(NULL);
  odb_step_release(NULL);
  return 0;
}

static int check_step(const odb_session_info* session, const odb_step* step, int64_t index) {
  odb_step_info info;
  odb_tensor tensor;
  odb_sample_id ids[8];
  double scale = 0;
  CHECK(odb_step_get_info(step, &info, sizeof(info)) == ODB_OK);
  CHECK(info.index == index);
  CHECK(info.idle == 0);
  CHECK(info.num_tensors == 3);
  CHECK(info.local.loss_tokens == 8);
  CHECK(info.emitted_samples == (index + 1) * 2);
  CHECK(odb_step_get_tensor(step, 0, &tensor, sizeof(tensor)) == ODB_OK);
  CHECK(strcmp(tensor.name, "input_ids") == 0);
  CHECK(tensor.dtype == ODB_INT64);
  CHECK(tensor.ndim == 2);
  CHECK(tensor.shape[0] == 2 && tensor.shape[1] == 8);
  CHECK(tensor.bytes == 2 * 8 * 8);
  CHECK((const char*)tensor.data >= session->arena);
  CHECK((const char*)tensor.data + tensor.bytes <= session->arena + session->arena_bytes);
  CHECK(((const int64_t*)tensor.data)[3] == index * 1000 + 3);
  CHECK(odb_step_get_tensor(step, 3, &tensor, sizeof(tensor)) == ODB_OUT_OF_RANGE);
  CHECK(odb_step_sample_ids(step, ids, 8) == 2);
  odb_step_info same;
  odb_tensor tensors[2];
  ids[1].key = -1;
  CHECK(odb_step_describe(step, &same, sizeof(same), tensors, 2, sizeof(tensors[0]), ids, 1) ==
        ODB_OK);
  CHECK(same.index == index && same.num_tensors == 3 && same.num_samples == 2);
  CHECK(strcmp(tensors[0].name, "input_ids") == 0);
  CHECK(strcmp(tensors[1].name, "labels") == 0 && tensors[1].bytes == 2 * 8 * 8);
  CHECK(ids[0].key == index * 2 && ids[1].key == -1);
  CHECK(odb_step_describe(step, &same, sizeof(same), tensors, 2, sizeof(tensors[0]), ids, 8) ==
        ODB_OK);
  CHECK(odb_step_is_stand_in(step) == 0);
  CHECK(ids[1].source == 1 && ids[1].key == index * 2 + 1);
  CHECK(odb_loss_scale(&info, ODB_LOSS_MEAN, ODB_WEIGHT_LOSS_TOKENS, 1, 1, &scale) == ODB_OK);
  CHECK(scale == 1.0);
  CHECK(odb_loss_scale(&info, 9, 0, 1, 1, &scale) == ODB_INVALID_ARGUMENT);
  CHECK(odb_loss_scale(&info, 0, 0, 1, 0, &scale) == ODB_INVALID_ARGUMENT);
  return 0;
}

/* Called from C++ with the socket of a fake daemon that serves 5 steps of 2 x 8. */
int odb_c99_test(const char* socket) {
  odb_session_info session;
  odb_waits waits;
  odb_step_info info;
  int64_t waited_us = 0;
  odb_step* step = NULL;
  odb_step* kept = NULL;
  odb_step* peeked = NULL;
  int64_t steps = 0;
  int rc;
  odb_client* client = odb_client_new();
  CHECK(check_misuse() == 0);
  CHECK(odb_client_set_option(client, "socket", socket) == ODB_OK);
  CHECK(odb_client_open(client) == ODB_OK);
  CHECK(odb_client_set_option(client, "prefetch", "1") == ODB_FAILED_PRECONDITION);
  CHECK(odb_client_session(client, &session, sizeof(session)) == ODB_OK);
  CHECK(strcmp(session.loss_scale, "loss_tokens") == 0);
  CHECK(session.accumulation == 1 && session.dp_size == 1);
  CHECK(odb_client_start_epoch(client, 0, 0, 0) == ODB_OK);
  while ((rc = odb_client_next(client, 100, &step)) != ODB_END) {
    if (rc == ODB_TIMEOUT) continue;
    CHECK(rc == ODB_OK);
    CHECK(check_step(&session, step, steps) == 0);
    CHECK(odb_step_get_info(step, &info, sizeof(info)) == ODB_OK);
    waited_us += info.waited_us;
    ++steps;
    rc = odb_client_peek(client, &peeked);
    if (rc == ODB_OK) {
      CHECK(check_step(&session, peeked, steps) == 0);
      odb_step_release(peeked);
    } else {
      CHECK(rc == ODB_TIMEOUT && peeked == NULL);
    }
    odb_step_release(kept);
    kept = step;
  }
  CHECK(step == NULL);
  CHECK(steps == 5);
  CHECK(odb_client_waits(client, &waits, sizeof(waits)) == ODB_OK);
  CHECK(waits.longest_us <= waits.total_us);
  CHECK(waited_us <= waits.total_us); /* the end was waited for, too */
  CHECK(odb_client_close(client) == ODB_OK);
  CHECK(odb_client_next(client, 0, &step) == ODB_FAILED_PRECONDITION);
  odb_client_free(client);
  CHECK(check_step(&session, kept, 4) == 0); /* the mapping outlives the client */
  odb_step_release(kept);
  return 0;
}
