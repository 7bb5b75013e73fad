// The NIC port: line rate, bounded debt, turns, control first, and a model that knows every instant.
#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "roce/nic_port.hpp"

namespace {

using genie::TimePs;
using genie::roce::NicPort;

constexpr TimePs kForEver = genie::kNever / 4;

NicPort::Pick picked(NicPort& port, TimePs now = genie::kNever) {
  NicPort::Pick pick;
  CHECK(port.pick(now, pick));
  return pick;
}

void back_to_back_at_the_line_rate() {
  NicPort port(0);
  port.mark_data(0, 100);
  for (TimePs left = 1; left <= 5; ++left) {
    picked(port);
    port.mark_more(0);
    CHECK_EQUAL(port.depart(100 + 10 * (left - 1), 10), 100 + 10 * left);
  }
}

void idle_time_is_not_credit() {
  NicPort port(kForEver);
  port.mark_data(0, 0);
  picked(port);
  CHECK_EQUAL(port.depart(0, 10), 10);
  port.mark_data(0, 1000);
  picked(port);
  CHECK_EQUAL(port.depart(1000, 10), 1010);
}

void lateness_is_caught_up_to_the_debt() {
  for (const TimePs debt : {TimePs{0}, TimePs{35}, TimePs{200}, kForEver}) {
    NicPort port(debt);
    port.mark_data(0, 0);
    picked(port);
    port.mark_more(0);
    port.depart(0, 10);
    picked(port);  // should have left at 20; the driver comes at 100
    CHECK_EQUAL_IN(port.depart(100, 10), std::max<TimePs>(20, 110 - debt), std::to_string(debt));
  }
}

void a_newcomer_takes_no_part_in_catching_up() {
  NicPort port(kForEver);
  port.mark_data(0, 0);
  picked(port);
  port.mark_more(0);
  CHECK_EQUAL(port.depart(0, 10), 10);
  port.mark_data(1, 99);
  port.mark_control(2, 99);  // the driver slept from 0 to 100; these came at 99
  NicPort::Pick pick = picked(port, 100);
  CHECK_EQUAL(pick.id, 0u);  // it was alone on the line at 10
  CHECK_EQUAL(port.depart(100, 10), 20);
  pick = picked(port, 100);
  CHECK(pick.control);
  CHECK_EQUAL(port.depart(100, 10), 109);
  pick = picked(port, 100);
  CHECK_EQUAL(pick.id, 1u);
  CHECK_EQUAL(port.depart(100, 10), 119);
  CHECK(!port.pick(genie::kNever, pick));
}

void control_goes_first_and_in_order() {
  NicPort port(0);
  port.mark_data(1, 5);
  port.mark_control(3, 5);
  port.mark_control(2, 5);
  port.mark_control(3, 5);  // once is enough
  const NicPort::Pick first = picked(port), second = picked(port), third = picked(port);
  CHECK(first.control && first.id == 3);
  CHECK(second.control && second.id == 2);
  CHECK(!third.control && third.id == 1);
  CHECK(port.next_pick() == genie::kNever);
}

void data_take_turns() {
  for (const TimePs serialisation : {TimePs{0}, TimePs{7}}) {
    NicPort port(1000);
    const std::uint32_t pairs = 5;
    for (std::uint32_t id = 0; id < pairs; ++id) port.mark_data(id, id);
    for (std::uint32_t turn = 0; turn < 100; ++turn) {
      const NicPort::Pick pick = picked(port);
      CHECK_EQUAL_IN(pick.id, turn % pairs, std::to_string(serialisation));
      port.mark_more(pick.id);
      port.depart(100, serialisation);
    }
  }
}

void a_turn_can_be_kept() {
  NicPort port(0);
  port.mark_data(0, 0);
  port.mark_data(1, 0);
  std::string order;
  for (int turn = 0; turn < 9; ++turn) {
    const NicPort::Pick pick = picked(port);
    order += static_cast<char>('0' + pick.id);
    port.mark_more(pick.id, turn % 3 != 2);
    port.depart(0, 0);
  }
  CHECK_EQUAL(order, std::string("000111000"));
}

// A driver that is late by drawn times, against rules that need no model of the port's insides.
struct Drawn {
  explicit Drawn(unsigned seed) : random(seed), name("seed " + std::to_string(seed)) {}

  std::uint64_t draw(std::uint64_t below) { return random() % below; }

  void mark(TimePs now) {
    const auto id = static_cast<std::uint32_t>(draw(6));
    if (draw(3) == 0) {
      port.mark_control(id, now);
      control.try_emplace(id, now);
    } else {
      port.mark_data(id, now);
      data.try_emplace(id, now);
      backlog[id] += 1 + draw(4);
    }
  }

  void send(TimePs now) {
    NicPort::Pick pick;
    CHECK_EQUAL_IN(port.pick(genie::kNever, pick), !control.empty() || !data.empty(), name);
    auto& waiting = pick.control ? control : data;
    CHECK_IN(waiting.count(pick.id) == 1, name);
    const TimePs since = waiting[pick.id];
    const TimePs open = std::max({free, since, now - debt});  // the line is open for it
    for (const auto& [id, other] : control) {
      // Never data before a control packet that was there when the data could begin.
      CHECK_IN(pick.control || other > std::max(free, since), name);
    }
    for (const auto& [id, other] : pick.control ? control : data) {
      CHECK_IN(std::max(free, other) >= std::max(free, since), name);  // no other could have begun sooner
    }
    waiting.erase(pick.id);
    if (!pick.control && --backlog[pick.id] > 0) {
      port.mark_more(pick.id);
      data.try_emplace(pick.id, since);
    }
    const TimePs serialisation = 1 + static_cast<TimePs>(draw(20));
    const TimePs left = port.depart(now, serialisation);
    CHECK_EQUAL_IN(left, open + serialisation, name);
    CHECK_IN(left - serialisation >= free, name);        // one packet at a time
    CHECK_IN(left - serialisation >= since, name);       // not before it was there
    CHECK_IN(left - serialisation >= now - debt, name);  // debt is bounded
    free = left;
  }

  void run(int events) {
    TimePs now = 0;
    for (int event = 0; event < events; ++event) {
      now += static_cast<TimePs>(draw(4) == 0 ? draw(200) : draw(10));
      for (std::uint64_t count = draw(3); count > 0; --count) mark(now);
      while (free <= now && (!control.empty() || !data.empty()) && draw(8) != 0) send(now);
    }
  }

  std::mt19937_64 random;
  std::string name;
  TimePs debt = 150, free = 0;
  NicPort port{150};
  std::map<std::uint32_t, TimePs> control, data;  // queue pairs that wait, since when
  std::map<std::uint32_t, std::uint64_t> backlog;
};

// Flow control has paused control packets: data that is held back still has its time.
void held_data_has_its_time_while_control_is_paused() {
  NicPort port{0};
  port.mark_control(1, 0);
  port.mark_data(2, 0, 700);
  CHECK(port.next_pick(true, true) == 0);
  CHECK(port.next_pick(false, true) == 700);
  CHECK(port.next_pick(false, false) == genie::kNever);
  NicPort::Pick pick;
  CHECK(!port.pick(699, pick, false, true));
  CHECK(port.pick(700, pick, false, true) && pick.id == 2 && !pick.control);
}

}  // namespace

int main() {
  held_data_has_its_time_while_control_is_paused();
  back_to_back_at_the_line_rate();
  idle_time_is_not_credit();
  lateness_is_caught_up_to_the_debt();
  a_newcomer_takes_no_part_in_catching_up();
  control_goes_first_and_in_order();
  data_take_turns();
  a_turn_can_be_kept();
  for (unsigned seed = 1; seed <= 20; ++seed) Drawn(seed).run(2000);
  return genie::test::check_result("test_nic_port");
}
