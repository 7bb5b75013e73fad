// Fold of a walker: a collective that has come to the same state twice is moved by whole periods. It ends
// with the records that playing these periods gives.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "core/snapshot.hpp"
#include "tests/check.hpp"
#include "tests/fold/walker_world.hpp"

using namespace genie;
using namespace genie::test;

namespace {

// Rounds of a ring of equal blocks, on channels that take turns. In each round and channel a rank sends the
// block that it received in the round before. A block is so many slices, of which `window` may be received
// ahead. A loop of rounds, whose second half does not reduce, begins once all slices of the loop before it
// are there. `loop` 0: there is one loop.
struct Ring {
  std::int32_t rounds = 400, channels = 1, slices = 1, window = 1, loop = 0;
  bool waits_for_both = false;  // the first slices of a loop wait for the round before, too
  bool sends_wait = false;      // for those a window before
  bool sends_first = false;     // sends wait for nothing
  bool sends_once = false;      // sends wait for the first receive alone
  bool turns = false;           // the second half goes to other ranks

  Pair operator()(std::int32_t number) const {
    const std::int32_t unit = number / channels, slice = unit % slices, length = loop > 0 ? loop : rounds;
    const std::int32_t round = unit / slices % length;
    const auto back = [&](std::int32_t units, bool is_send = false) {
      return Wait{units * channels, is_send};
    };
    Pair it{.receive = {back(window)},
            .channel = number % channels,
            .far = turns && 2 * unit >= rounds * slices ? 2 : 1,
            .reduces = loop > 0 && round < loop / 2};
    if (sends_once && number > 0) it.send.push_back({number});
    if (sends_first || sends_once) return it;
    if (sends_wait) it.send.push_back(back(window, true));
    const bool waits_for_loop = round == 0 && slice < slices - 1;
    if (waits_for_loop) it.send.push_back(back(slice + 1));
    if (!waits_for_loop || waits_for_both) it.send.push_back(back(slices));
    return it;
  }
};

Case ring(const std::string& name, const Ring& rounds, Case each = {}) {
  each.name = name;
  each.members = std::max(each.members, 4);  // a turn needs ranks two apart
  each.pairs = rounds.rounds * rounds.slices * rounds.channels;
  each.channels = rounds.channels;
  each.pair = rounds;
  if (each.credit) each.slice_delay = 2'000;
  return each;
}

std::function<TimePs(std::int32_t)> always(TimePs time) {
  return [time](std::int32_t) { return time; };
}
std::function<TimePs(std::int32_t)> apart(TimePs time) {
  return [time](std::int32_t rank) { return rank * time; };
}

std::string records_of(World& world) {
  std::string text;
  const auto add = [&](auto... values) { ((text += std::to_string(values) + " "), ...); };
  for (const Walker& walker : world.walkers()) {
    for (const NodeRecord& it : walker.nodes()) add(it.ready, it.start, it.end);
    for (const SendRecord& it : walker.sends())
      add(it.peer, it.messages, it.size_bytes, it.post, it.acked, it.busy, it.outstanding);
    for (const ReceiveRecord& it : walker.receives())
      add(it.peer, it.messages, it.size_bytes, it.first, it.last);
    add(walker.steps_done(), walker.last_end());
    text += walker.done() ? "done" : "not done";
  }
  return text;
}

using Places = std::vector<Walker::Progress>;  // of all collectives in progress

Places places_of(World& world) {
  Places found;
  for (const Walker& walker : world.walkers()) {
    for (const Walker::Progress& own : walker.in_progress()) found.push_back(own);
  }
  return found;
}

bool have_same_bases(const Places& one, const Places& other) {
  return std::ranges::equal(one, other, {}, &Walker::Progress::base, &Walker::Progress::base);
}

// The number of periods that a world may move after a state that recurs now. 0: none.
std::int64_t periods_of(World& world, const Snapshot& before, const Snapshot& now, const Places& places) {
  std::int64_t periods = std::min<std::int64_t>(before.periods_left(now), 1'000'000);
  std::size_t at = 0;
  bool moves = false;
  for (const Walker& walker : world.walkers()) {
    for (const Walker::Progress& own : walker.in_progress()) {
      const Walker::Progress& earlier = places[at++];
      if (own.base == earlier.base) continue;
      moves = true;
      periods = walker.repeats(earlier, own, periods);
    }
  }
  return moves ? periods : 0;
}

void jump(World& world, const Snapshot& before, const Snapshot& now, std::int64_t periods,
          const std::string& name) {
  Shift shift(before, now, periods);
  world.fold(shift);
  CHECK_IN(shift.is_over(), name);
  world.move_to(now.now + shift.by());
}

// Looks for the period at each instant, and returns the share of the time that was skipped.
double check(const Case& each) {
  World played(each), jumped(each);
  played.play(kNever);
  TimePs skipped = 0;
  std::vector<std::pair<Snapshot, Places>> before;
  while (!jumped.is_over()) {
    jumped.play(jumped.next() + 1);
    Snapshot now = jumped.snapshot();
    Places places = places_of(jumped);
    const auto same = std::find_if(before.begin(), before.end(), [&](const auto& it) {
      return it.first.recurs_in(now) && it.second.size() == places.size();
    });
    const std::int64_t periods =
        same == before.end() ? 0 : periods_of(jumped, same->first, now, same->second);
    if (periods > 0) {
      jump(jumped, same->first, now, periods, each.name);
      skipped += (now.now - same->first.now) * periods;
      before.clear();
    } else if (same == before.end() || have_same_bases(same->second, places)) {
      before.emplace_back(std::move(now), std::move(places));
    }
  }
  CHECK_EQUAL_IN(records_of(jumped), records_of(played), each.name);
  TimePs end = 1;
  for (const Walker& walker : jumped.walkers()) end = std::max(end, walker.last_end());
  return static_cast<double>(skipped) / static_cast<double>(end);
}

// Jumps from each pair of equal states of a short collective, and returns the number of jumps.
int check_each(const Case& each) {
  World played(each), first(each);
  played.play(kNever);
  const std::string records = records_of(played);
  std::vector<std::pair<Snapshot, Places>> before;
  int jumps = 0;
  while (!first.is_over()) {
    first.play(first.next() + 1);
    const Snapshot now = first.snapshot();
    const Places places = places_of(first);
    for (const auto& [state, of] : before) {
      if (of.size() != places.size() || !state.recurs_in(now)) continue;
      World jumped(each);
      jumped.play(now.now);
      const Snapshot again = jumped.snapshot();
      const std::int64_t periods = periods_of(jumped, state, again, of);
      if (periods == 0) continue;
      jump(jumped, state, again, periods, each.name);
      jumped.play(kNever);
      CHECK_EQUAL_IN(records_of(jumped), records, each.name);
      ++jumps;
    }
    before.emplace_back(now, places);
  }
  return jumps;
}

// Waits: none, for the send and for the receive of the pair before.
const std::vector<Wait> kNone, kSend = {{1, true}}, kReceive = {{1}};

std::vector<Case> short_cases() {
  const auto of = [](std::vector<Pair> all) {
    return [all](std::int32_t number) { return all[static_cast<std::size_t>(number)]; };
  };
  return {
      {.name = "empty blocks are done before the messages ahead of them",
       .pairs = 24,
       .pair =
           [](std::int32_t number) {
             if (number % 2 == 1) return Pair{.send = kSend, .receive = {{7}}, .is_empty = true};
             return Pair{.send = {{2}, {number < 16 ? 3 : 1}}, .receive = {{6}}};
           }},
      {.name = "receives that wait for nothing run ahead of slow GPUs",
       .members = 3,
       .pairs = 60,
       .pair = [](std::int32_t) { return Pair{.send = {{1, true}, {0}}}; },
       .delay = [](std::int32_t number) { return TimePs{number == 45 ? 80'000'000 : 20'000'000}; },
       .acks_early = true,
       .receives_first = true,
       .is_chain = true,
       .last_window = 24},
      {.name = "sends that wait for nothing run ahead of receives",
       .members = 3,
       .pairs = 14,
       .pair =
           [](std::int32_t number) {
             return Pair{.receive = number == 12 ? std::vector<Wait>{{1}, {3, true, 0}} : kReceive};
           },
       .credit = true,
       .starts = [](std::int32_t rank) { return TimePs{rank == 2 ? 10'000'000 : 0}; },
       .jumps = false},
      {.name = "the last sends wait for another receive than those before",
       .members = 3,
       .pairs = 32,
       .pair =
           [](std::int32_t number) {
             std::vector<Wait> sends = number == 0 ? kNone : std::vector<Wait>{{number}};
             if (number > 26) sends = {{number - 20}};
             return Pair{.send = sends, .receive = {{4}}};
           },
       .credit = true},
      {.name = "receives of a later pair wait for more, while sends wait",
       .members = 3,
       .pairs = 60,
       .pair =
           [](std::int32_t number) {
             const std::vector<Wait> sends = number == 0 ? kNone : std::vector<Wait>{{number}};
             if (number == 50) return Pair{.send = sends, .receive = {{4}, {2, true}}};
             return Pair{.send = sends, .receive = {{4}}};
           },
       .credit = true},
      {.name = "a send that will wait needs one step more than those before",
       .pairs = 100,
       .pair =
           [](std::int32_t number) {
             std::vector<Wait> sends = {{20}};
             if (number == 70) sends.push_back({4});
             return Pair{.send = sends, .receive = {{3, true}}};
           },
       .credit = true},
      {.name = "a send that will wait needs one step more, while a receive is not ready",
       .pairs = 100,
       .pair =
           [](std::int32_t number) {
             std::vector<Wait> sends = {{40, false, 0}, {1, false, 1}}, receives = {{3, true, 1}};
             if (number == 70) sends.push_back({4, false, 0});
             if (number == 60) receives.push_back({2, true, 0});
             return Pair{.send = sends, .receive = receives};
           },
       .credit = true,
       .jumps = false},
      {.name = "empty sends are over at once, and a late one leads to more",
       .pairs = 100,
       .pair =
           [](std::int32_t number) {
             std::vector<Wait> sends = {{20}};
             if (number % 2 == 0) sends.push_back({1, true});
             if (number == 80) sends.push_back({3, true});
             return Pair{.send = sends, .receive = {{3, true}}, .is_empty = number % 2 == 1};
           },
       .credit = true,
       .jumps = false},
      {.name = "a chain's first rank sends blocks of another size at the end",
       .members = 3,
       .pairs = 40,
       .pair =
           [](std::int32_t number) {
             return Pair{.send = {{4, true}}, .receive = {{4}}, .is_empty = number > 33};
           },
       .credit = true,
       .is_chain = true,
       .last_window = 4},
      {.name = "a receive leads to the next from the last pair on",
       .pairs = 6,
       .pair = of({{kNone, kNone},
                   {kReceive, kNone},
                   {kReceive, kNone},
                   {kReceive, {{3}}},
                   {kReceive, {{3}}},
                   {kReceive, kReceive}}),
       .delay = always(2'100'000),
       .jumps = false},
      {.name = "a send leads to a receive",
       .pairs = 9,
       .pair =
           [](std::int32_t number) {
             if (number < 2) return Pair{};
             return number < 8 ? Pair{.send = {{2}}} : Pair{.send = kReceive, .receive = {{6, true}}};
           },
       .jumps = false},
      {.name = "a receive waits for two",
       .pairs = 7,
       .pair = of({{kNone, kNone},
                   {kReceive, kNone},
                   {kReceive, kNone},
                   {kReceive, {{3}}},
                   {kReceive, {{3}}},
                   {kReceive, {{3}, {1, true}}},
                   {kReceive, {{3}}}}),
       .jumps = false},
      {.name = "a receive waits for its message",
       .pairs = 6,
       .pair = of({{kNone, kNone},
                   {kSend, kNone},
                   {kSend, kNone},
                   {kSend, kNone},
                   {kReceive, {{2}}},
                   {kReceive, {{2}}}}),
       .jumps = false},
      {.name = "a message is the last that is under way",
       .pairs = 8,
       .pair = of({{kNone, kNone},
                   {kNone, kNone},
                   {kSend, kNone},
                   {kSend, kNone},
                   {kSend, kNone},
                   {kSend, {{3}}},
                   {kSend, {{3}}},
                   {kSend, {{3}}}}),
       .acks_early = true,
       .jumps = false},
  };
}

}  // namespace

int main() {
  const Ring loops{.slices = 2, .window = 8, .loop = 40}, long_loops{.slices = 2, .window = 8, .loop = 100};
  Ring both = loops, two = loops, two_long = long_loops;
  both.waits_for_both = true;
  two.channels = two_long.channels = 2;
  for (const Case& each : {
           ring("equal starts", {}),
           ring("two channels", {.channels = 2}),
           ring("clear-to-sends", {}, {.credit = true}),
           ring("clear-to-sends on two channels", {.channels = 2}, {.credit = true}),
           ring("GPU times", {.channels = 2}, {.credit = true, .delay = always(3'000)}),
           ring("other starts", {}, {.starts = apart(90'000)}),
           ring("other starts, clear-to-sends", {.channels = 2},
                {.members = 8, .credit = true, .starts = apart(7'000)}),
           ring("loops", loops),
           ring("loops on two channels", two),
           ring("loops, clear-to-sends", two_long,
                {.credit = true, .starts = apart(11'000), .least_share = 0.4}),
           ring("loops that wait for two", both),
           ring("sends that wait", {.slices = 2, .window = 4, .loop = 100, .sends_wait = true},
                {.least_share = 0.4}),
           ring("sends that wait for nothing", {.slices = 2, .window = 8, .sends_first = true},
                {.credit = true}),
           ring("sends that wait for the first receive alone", {.window = 8, .sends_once = true},
                {.credit = true}),
           ring("sends on two channels that wait for the first receive alone",
                {.channels = 2, .slices = 2, .window = 8, .sends_once = true}, {.credit = true}),
           {.name = "a chain whose first rank only sends",
            .members = 4,
            .pairs = 400,
            .pair = [](std::int32_t) { return Pair{.send = {{0}}, .receive = {{8, true}}}; },
            .credit = true,
            .slice_delay = 2'000,
            .receives_first = true,
            .is_chain = true,
            .last_window = 8},
           ring("other ranks later", {.slices = 2, .window = 8, .turns = true}),
           ring("acknowledgements first", loops, {.acks_early = true}),
           ring("slow GPUs", loops, {.delay = always(2'100'000)}),
           ring("loops, GPU times", {.slices = 4, .window = 16, .loop = 100},
                {.delay = always(3'000), .least_share = 0.4}),
       }) {
    const double share = check(each);
    std::printf("%s: %.1f %% of the time skipped\n", each.name.c_str(), 100 * share);
    CHECK_IN(share > each.least_share, each.name);
  }
  for (const Case& each : short_cases()) CHECK_EQUAL_IN(check_each(each) > 0, each.jumps, each.name);
  return test::check_result("test_fold_walker");
}
