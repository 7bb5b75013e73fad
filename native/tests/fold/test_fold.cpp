// Folds of queue pairs, congestion controls and NIC ports. A state that recurs may be shifted by whole
// periods. It is then the state that is reached by playing them. Each field that a shift leaves out shows.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "congestion/control_tape.hpp"
#include "core/snapshot.hpp"
#include "roce/nic_port.hpp"
#include "roce/queue_pair.hpp"
#include "tests/check.hpp"
#include "tests/fold/incomplete.hpp"
#include "tests/fold/visits.hpp"

using namespace genie;
using congestion::Control;
using roce::QueuePair;
using roce::QueuePairConfig;
using test::Incomplete;

namespace {

constexpr std::int64_t kRateBps = 100'000'000'000;
constexpr TimePs kDelay = 700'000, kInterval = 20 * kPsPerUs;
constexpr std::uint32_t kHeaderBytes = 70;

struct OnWire {
  TimePs at;
  int to;
  roce::Packet packet;
};

// Two ends, of which one posts a message of the same size every interval.
struct World {
  struct End {
    explicit End(const QueuePairConfig& config, std::uint32_t psn, std::uint32_t peer_psn)
        : pair(config, 0, psn, peer_psn) {}
    QueuePair pair;
    roce::NicPort port{0};
    TimePs busy_until = 0, timer = kNever;
    std::uint64_t sent = 0, delivered = 0;
  };
  struct Sink {
    World& world;
    End& end;
    void ready(QueuePair& pair) {
      if (pair.has_control()) end.port.mark_control(0, world.now);
      if (pair.has_data()) end.port.mark_data(0, world.now, pair.data_from());
    }
    void arm_timer(QueuePair&, TimePs at) { end.timer = at; }
    void sent(QueuePair&, std::uint64_t, roce::Status, std::uint32_t) { ++end.sent; }
    bool may_write(QueuePair&, std::uint32_t, std::uint64_t, std::uint32_t) { return true; }
    bool may_read(QueuePair&, std::uint32_t, std::uint64_t, std::uint32_t) { return true; }
    bool readable(QueuePair&) { return true; }
    bool take_receive(QueuePair&) { return true; }
    std::int64_t receives_left(QueuePair&) { return -1; }
    bool place(QueuePair&, const roce::Packet&, std::uint64_t) { return true; }
    void fetched(QueuePair&, const roce::Packet&, std::uint64_t) {}
    void refused(QueuePair&, const roce::Packet&, roce::Refusal) { CHECK(false); }
    void delivered(QueuePair&, const roce::Delivery&) { ++end.delivered; }
  };

  World(const QueuePairConfig& its_config, std::uint32_t size)
      : config(its_config), size_bytes(size), ends{End{config, 0xFFFF00, 5}, End{config, 5, 0xFFFF00}} {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void send(int at) {
    End& end = ends[at];
    Sink sink{*this, end};
    roce::NicPort::Pick pick;
    if (now < end.busy_until || !end.port.pick(now, pick)) return;
    roce::Packet packet;
    const bool taken =
        pick.control ? end.pair.take_control(packet, sink) : end.pair.take_data(now, packet, sink);
    if (end.pair.has_control()) end.port.mark_control(0, now);
    if (!taken) return;
    const std::uint32_t wire = packet.payload_bytes + kHeaderBytes;
    const TimePs takes = serialisation_ps(wire, kRateBps);
    end.busy_until = end.port.depart(now, takes);
    if (!pick.control) {
      end.pair.departed(wire, end.busy_until - takes);
      if (end.pair.has_data()) end.port.mark_more(0, false, end.pair.data_from());
    }
    wires.push_back({end.busy_until + kDelay, 1 - at, packet});
  }

  // Plays all before `until`, and comes to that time.
  void play(TimePs until) {
    while (true) {
      TimePs next = next_post;
      for (const OnWire& each : wires) next = std::min(next, each.at);
      for (const End& end : ends) {
        next = std::min(next, end.timer);
        if (const TimePs pick = end.port.next_pick(); pick != kNever)
          next = std::min(next, std::max({pick, end.busy_until, now}));
      }
      if (next >= until) break;
      now = next;
      for (int at : {0, 1}) {
        Sink sink{*this, ends[at]};
        while (!wires.empty() && wires.front().at == now && wires.front().to == at) {
          const roce::Packet packet = wires.front().packet;
          wires.pop_front();
          ends[at].pair.receive(packet, now, sink);
        }
        if (ends[at].timer == now) {
          ends[at].timer = kNever;
          ends[at].pair.timer(now, sink);
        }
      }
      std::stable_sort(wires.begin(), wires.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
      if (next_post == now) {
        Sink sink{*this, ends[0]};
        ends[0].pair.post({.verb = roce::Verb::kWriteImm, .size_bytes = size_bytes, .immediate = 7}, sink);
        next_post += kInterval;
      }
      for (int at : {0, 1}) send(at);
    }
    now = until;
  }

  void fold(Fold& fold) {
    fold.moment(next_post);
    for (End& end : ends) {
      end.pair.fold(fold);
      end.port.fold(fold);
      fold.not_before(end.busy_until);
      fold.timer(end.timer);
      fold.total(end.sent);
      fold.total(end.delivered);
    }
    fold.exact(wires.size());
    for (OnWire& each : wires) {
      fold.base(each.packet.psn, roce::kPsnMask);
      fold.base(each.packet.msn, roce::kPsnMask);
      fold.exact(each.to, each.packet.opcode, each.packet.payload_bytes);
      fold.moment(each.at);
    }
  }

  Snapshot snapshot() {
    Observe found(now);
    fold(found);
    return found.take();
  }

  QueuePairConfig config;
  std::uint32_t size_bytes;
  TimePs now = 0, next_post = 0;
  End ends[2];
  std::deque<OnWire> wires;
};

struct Case {
  std::string name;
  QueuePairConfig config;
  std::uint32_t size_bytes;
};

std::vector<Case> cases() {
  std::vector<Case> found;
  for (const Control control : {Control::kNone, Control::kWindow, Control::kDcqcn, Control::kDcqcnTimer,
                                Control::kTimely, Control::kSwift, Control::kDctcp, Control::kNscc}) {
    for (const std::uint32_t size_bytes : {900u, 50'000u, 180'000u}) {
      QueuePairConfig config;
      config.window_packets = 64;
      config.congestion.control = control;
      config.congestion.line_rate_bps = kRateBps;
      config.congestion.base_round_trip = 2 * kPsPerUs;
      found.push_back({"control " + std::to_string(static_cast<int>(control)) + ", " +
                           std::to_string(size_bytes) + " bytes",
                       config, size_bytes});
    }
  }
  return found;
}

constexpr int kWarmup = 1500;  // intervals: windows have grown to their ends
constexpr TimePs kPhase = 3 * kPsPerUs;
constexpr int kPeriodMax = 8;  // intervals

// Plays worlds that are alike until the state of the first has come again; false if it does not.
bool play_a_period(const std::vector<World*>& worlds, int warmup, Snapshot& earlier, Snapshot& later) {
  for (World* world : worlds) world->play(warmup * kInterval + kPhase);
  earlier = worlds[0]->snapshot();
  for (int interval = 0; interval < kPeriodMax; ++interval) {
    for (World* world : worlds) world->play(world->now + kInterval);
    later = worlds[0]->snapshot();
    if (earlier.recurs_in(later)) return true;
  }
  return false;
}

bool check_jump(const Case& each, std::int64_t periods) {
  World played(each.config, each.size_bytes), jumped(each.config, each.size_bytes);
  Snapshot earlier, later;
  if (!play_a_period({&jumped, &played}, kWarmup, earlier, later)) return false;
  CHECK_IN(jumped.ends[0].pair.can_fold() && jumped.ends[1].pair.can_fold(), each.name);
  Shift shift(earlier, later, periods);
  jumped.fold(shift);
  CHECK_IN(shift.is_over(), each.name);
  jumped.now += shift.by();
  played.play(jumped.now);
  for (int more = 0; more < 3; ++more) {
    const Snapshot one = played.snapshot(), other = jumped.snapshot();
    CHECK_IN(one == other, each.name);
    for (World* world : {&played, &jumped}) {
      world->size_bytes += 5000;  // the rest need not recur
      world->play(world->now + kInterval / 3);
    }
  }
  return true;
}

// The number of fields without which a shift is wrong, and of replays among them.
struct Caught {
  std::size_t fields = 0, replays = 0;
};
Caught check_each_field(const Case& each) {
  std::size_t fields = 1;
  Caught caught;
  for (std::size_t without = 0; without < fields; ++without) {
    World played(each.config, each.size_bytes), jumped(each.config, each.size_bytes);
    Snapshot earlier, later;
    if (!play_a_period({&jumped, &played}, 100, earlier, later)) return caught;
    Incomplete shift(earlier, later, 3, without);
    jumped.fold(shift);
    fields = shift.fields();
    if (shift.means_nothing()) continue;
    jumped.now += shift.by();
    played.play(jumped.now);
    const Snapshot one = played.snapshot(), other = jumped.snapshot();
    if (shift.is_replay()) {
      caught.replays += one == other ? 0 : 1;
      continue;
    }
    CHECK_IN(!(one == other), each.name + ", without field " + std::to_string(without));
    ++caught.fields;
  }
  return caught;
}

// A message that is longer than a period keeps its place while others move on, and ends when it would have.
bool check_long_message(const Case& each) {
  constexpr std::uint32_t kSize = 64'000'000;
  constexpr TimePs kPeriod = 16 * serialisation_ps(4096 + kHeaderBytes, kRateBps), kWarm = 100 * kPeriod;
  World played(each.config, kSize), jumped(each.config, kSize);
  for (World* world : {&played, &jumped}) {
    world->play(1);  // the message is posted
    world->next_post = kNever;
    world->play(kWarm);
  }
  const Snapshot earlier = jumped.snapshot();
  for (World* world : {&played, &jumped}) world->play(kWarm + kPeriod);
  const Snapshot later = jumped.snapshot();
  if (!earlier.recurs_in(later)) return false;
  const std::int64_t left = earlier.periods_left(later);
  CHECK_IN(left > 500 && left < kSize / (16 * 4096), each.name);
  Shift shift(earlier, later, left);
  jumped.fold(shift);
  jumped.now += shift.by();
  played.play(jumped.now);
  for (int more = 0; more < 8; ++more) {
    CHECK_IN(played.snapshot() == jumped.snapshot(), each.name + ", a long message");
    for (World* world : {&played, &jumped}) world->play(world->now + kPeriod / 2);
  }
  CHECK_IN(jumped.ends[0].sent == 1 && jumped.ends[1].delivered == 1, each.name);
  return true;
}

// An acknowledgement at the very time of a look belongs to the period that begins there. A window that moves
// ends the periods only where packets under way reach it: `under_way` after each acknowledgement, and
// `at_end` where the period ends.
void check_tape(const Case& each, std::uint64_t under_way, std::uint32_t at_end) {
  const congestion::Config& config = each.config.congestion;
  const std::unique_ptr<congestion::Controller> played = congestion::make_controller(config, 4096),
                                                jumped = congestion::make_controller(config, 4096);
  if (played == nullptr || !played->is_replayed()) return;
  constexpr TimePs kBegin = 100 * kPsPerUs, kPeriod = 4 * kPsPerUs;
  constexpr congestion::ControlBounds kBounds{4096, 1 << 20, 1};
  congestion::ControlTape tape(*jumped, kBounds);
  tape.observed(kBegin);
  std::uint64_t acknowledged = 0;
  const auto news = [&](TimePs now) {
    ++acknowledged;
    return congestion::Acknowledgement{.now = now,
                                       .round_trip = 3 * kPsPerUs,
                                       .bytes = 4096,
                                       .flight_bytes = static_cast<std::int64_t>(under_way) * 4096,
                                       .acknowledged = acknowledged,
                                       .sent = acknowledged + under_way};
  };
  constexpr int kPeriods = 10;
  bool moves = false, is_reached = false;
  const auto window = [&] { return congestion::ControlWindow::of(*played, kBounds).packets; };
  for (int period = 0; period <= kPeriods; ++period) {
    for (const TimePs after : {TimePs{0}, kPeriod / 3}) {
      const congestion::Acknowledgement given = news(kBegin + period * kPeriod + after);
      const std::uint32_t before = window();
      is_reached |= before <= under_way + 1;
      played->acknowledged(given);
      is_reached |= after > 0 && window() <= at_end;
      moves |= window() != before;
      if (period > 0) continue;
      tape.add(given);
      jumped->acknowledged(given);
    }
  }
  const TimePs end = kBegin + kPeriod;
  tape.set_in_flight(at_end);
  const auto at = [](TimePs now) {
    Snapshot state;
    state.now = now;
    return state;
  };
  const Snapshot begin = at(kBegin), later = at(end), last = at(end + kPeriods * kPeriod),
                 before_last = at(end + (kPeriods - 4) * kPeriod);
  const std::int64_t periods = tape.repeats({begin, later}, kPeriods);
  if (periods < kPeriods) {  // its limits move
    CHECK_IN(is_reached || played->paced(), each.name + ", a tape with a window that is not reached");
    return;
  }
  CHECK_IN(!moves || !is_reached, each.name + ", a tape with a window that is reached");
  tape.replay({begin, later}, kPeriods);
  Observe one(end), other(end);
  played->fold(one, {});
  jumped->fold(other, {});
  CHECK_IN(one.found() == other.found(), each.name + ", a tape");
  // A replayed period can come again as a part of a longer one.
  CHECK_IN(tape.repeats({before_last, last}, 3) == 3, each.name + ", a tape after a jump");
}

// Fields of two queue pairs, by the control of their rates.
const std::pair<Control, const char*> kVisits[] = {
    {Control::kNone, "exact 97, time 20, base 22, relative 12, total 8, rare 38, latest 1, either 4, left 1"},
    {Control::kWindow,
     "exact 109, time 22, base 26, relative 12, total 8, rare 38, latest 1, either 4, left 1"},
    {Control::kDcqcn,
     "exact 111, time 22, base 22, relative 12, total 8, rare 38, latest 1, either 4, left 1"},
    {Control::kDcqcnTimer,
     "exact 115, time 26, base 22, relative 12, total 8, rare 38, latest 1, either 4, left 1"},
    {Control::kTimely,
     "exact 113, time 31, base 22, relative 12, total 8, rare 38, latest 1, either 4, left 1, replayed 2"},
    {Control::kSwift,
     "exact 107, time 28, base 22, relative 12, total 8, rare 38, latest 1, either 4, left 1, replayed 2"},
    {Control::kDctcp,
     "exact 113, time 20, base 22, relative 14, total 8, rare 38, latest 1, either 4, left 1, replayed 2"},
    {Control::kNscc,
     "exact 114, time 31, base 24, relative 12, total 8, rare 38, latest 1, either 4, left 1, replayed 2"},
};
void check_visits(Control control, const char* expected) {
  for (const Case& each : cases()) {
    if (each.config.congestion.control != control || each.size_bytes != 180'000) continue;
    World world(each.config, each.size_bytes);
    world.play(200 * kInterval + kPhase);
    test::Visits visits;
    world.fold(visits);
    CHECK_EQUAL_IN(visits.text(), std::string(expected), each.name + ", visits of its fold");
  }
}

// A word that differs is another state.
void check_words(const Case& each) {
  World world(each.config, each.size_bytes);
  world.play(200 * kInterval + kPhase);
  const Snapshot usual = world.snapshot();
  class Changed : public Observe {
   public:
    Changed(TimePs now, std::size_t which) : Observe(now), which_(which) {}

   protected:
    void word(std::uint64_t value) override {
      Observe::word(found().words.size() == which_ ? value + 1 : value);
    }

   private:
    std::size_t which_;
  };
  for (std::size_t which = 0; which < usual.words.size(); ++which) {
    Changed other(world.now, which);
    world.fold(other);
    CHECK_IN(!usual.recurs_in(other.found()), each.name);
  }
}

}  // namespace

int main() {
  std::size_t jumped = 0, long_jumps = 0;
  Caught caught;
  const std::vector<Case> all = cases();
  for (const Case& each : all) {
    for (const std::int64_t periods : {1, 2, 300}) jumped += check_jump(each, periods) ? 1 : 0;
    const Caught found = check_each_field(each);
    caught.fields += found.fields;
    caught.replays += found.replays;
    check_words(each);
    for (std::uint32_t under_way = 1; under_way <= 64; ++under_way) {
      check_tape(each, under_way, under_way);
      check_tape(each, 1, under_way);
    }
  }
  for (const auto& [control, visits] : kVisits) check_visits(control, visits);
  CHECK(jumped >= 3 * all.size() * 3 / 4);
  CHECK(caught.fields > 20 * all.size());
  CHECK(caught.replays > 0);
  for (std::size_t at = 0; at < all.size(); at += 3) long_jumps += check_long_message(all[at]) ? 1 : 0;
  CHECK(long_jumps >= all.size() / 3 - 1);
  std::printf("jumps: %zu of %zu, in long messages: %zu, fields caught: %zu, replays: %zu\n", jumped,
              3 * all.size(), long_jumps, caught.fields, caught.replays);
  return test::check_result("test_fold");
}
