package words

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"capri"
)

// A language is what the templates cannot say: times, durations, levels and kinds.
type language struct {
	name string

	levels []string  // by capri.Level; 0: it has none
	units  [4]string // day, hour, minute, second, each with what stands before it
	comma  string    // between names

	// Layouts of times: of the day of the message, of another day, in full. The spoken one is of another day, too.
	clock, day, full, spokenDay string
	zone                        string // a time in full, its zone's short name, its zone

	unknown         string // what has happened where nothing is known of it
	repeat          string
	note, noteShort string // of a template that failed
	cutNote         string // of a text that was cut: bytes shown, bytes in all
}

var languages = map[string]*language{
	"en": {
		name: "en", levels: []string{"Notice", "Attention", "Important", "Severe"},
		units: [4]string{" d", " h", " min", " s"}, comma: ", ",
		clock: "15:04", day: "2 Jan 15:04", full: "2 January 2006, 15:04", spokenDay: "2 January, 15:04", zone: "%s %s (%s)",
		unknown: "an alert", repeat: "I repeat:", noteShort: "(own template failed)",
		note:    "A template of yours failed, and the built-in one was used:",
		cutNote: "… (cut here: %d of %d bytes)",
	},
	"zh": {
		name: "zh", levels: []string{"通知", "关注", "重要", "严重"},
		units: [4]string{" 天", " 小时", " 分钟", " 秒"}, comma: "、",
		clock: "15:04", day: "1月2日 15:04", full: "2006年1月2日 15:04", spokenDay: "1月2日 15:04", zone: "%s %s（%s）",
		unknown: "告警", repeat: "重复一遍：", noteShort: "（模板出错）",
		note:    "自定义模板出错，已改用内置模板：",
		cutNote: "…（以下省略，显示 %d 字节，共 %d 字节）",
	},
}

func languageNames() []string { return slices.Sorted(maps.Keys(languages)) }

// Kinds lists the kinds of alerts that there are.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds["en"])) }

// kinds says what each kind of alert is, as what follows "TASK BATCH: " or stands alone. A test holds it against the
// kinds that the code raises.
var kinds = map[string]map[string]string{
	"en": {
		// of a task
		"batch_failed":       "the batch failed",
		"dependency_timeout": "it still waits for what it depends on (dependency timeout)",
		"output_timeout":     "it has not succeeded in time (output timeout)",
		"generate_failed":    "its batch could not be generated",
		"zombie":             "its process is gone",
		"over_memory":        "it uses more memory than it asks for",
		"quality_blocked":    "the quality gate blocks it",
		"expected_duration":  "its usual duration has changed",
		"big_task":           "it ran for too long",
		"breaker_opened":     "it failed too often in a row, and its circuit breaker is open",
		"unmet_repaired":     "its unmet conditions were counted wrongly",
		// of the system
		"generate_many_failed":  "batches of many tasks could not be generated",
		"outage_caught_up":      "nothing was generated for a while, and has been caught up",
		"generate_slow":         "generation is slow",
		"mark_slow":             "the generation of a mark took long",
		"dependency_slow":       "dependency checking is slow",
		"service_overdue":       "a service is overdue",
		"batches_missing":       "batches are missing",
		"ready_waits":           "ready batches wait although a node is free",
		"recount_repaired":      "unmet conditions were counted wrongly",
		"masters_few":           "few masters live",
		"workers_few":           "few workers live",
		"node_load":             "a node is loaded",
		"node_over_memory":      "jobs on a node have more memory than they ask for",
		"node_lost":             "a node is lost",
		"node_silent":           "a node is silent",
		"clock_off":             "a clock is off",
		"rescheduled":           "a node does not claim what it is given",
		"quality_unasked":       "the quality API could not be asked",
		"quality_unconfigured":  "batches wait at a quality gate, and no quality API is configured",
		"paths_unchecked":       "input paths cannot be checked",
		"probe_failed":          "a probe fails",
		"probe_over":            "a probe is well again",
		"cold_start_done":       "a cold start has ended",
		"cold_start_left_alone": "a cold start left unfinished batches alone",
		"duty_hole":             "nobody is on duty at a time to come",
		"ended_success":         "the batch has succeeded",
		"ended_failed":          "the batch has failed",
		"ended_killed":          "the batch was killed",
		"ended_skipped":         "the batch was skipped",
		"raised":                "somebody has raised an alert",
		"message_given_up":      "a message could not be delivered",
		"channel_down":          "messages do not go out by a channel",
		"messages_expired":      "messages were too old to be sent",
	},
	"zh": {
		"batch_failed":       "批次运行失败",
		"dependency_timeout": "仍在等待依赖（依赖超时）",
		"output_timeout":     "未按时成功（产出超时）",
		"generate_failed":    "批次生成失败",
		"zombie":             "进程已不存在",
		"over_memory":        "内存超出申请量",
		"quality_blocked":    "数据质量检查未通过",
		"expected_duration":  "预期时长已变化",
		"big_task":           "运行时间过长",
		"breaker_opened":     "连续失败次数过多，已熔断",
		"unmet_repaired":     "未满足依赖的计数有误，已修复",

		"generate_many_failed":  "大量任务的批次生成失败",
		"outage_caught_up":      "批次生成曾中断，现已补齐",
		"generate_slow":         "批次生成缓慢",
		"mark_slow":             "批次生成耗时过长",
		"dependency_slow":       "依赖检查缓慢",
		"service_overdue":       "服务未按时运行",
		"batches_missing":       "缺少批次",
		"ready_waits":           "有空闲节点，但就绪批次未被调度",
		"recount_repaired":      "未满足依赖的计数有误，已修复",
		"masters_few":           "存活的 master 过少",
		"workers_few":           "存活的 worker 过少",
		"node_load":             "节点负载过高",
		"node_over_memory":      "节点上的作业内存超出申请量",
		"node_lost":             "节点失联",
		"node_silent":           "节点没有心跳",
		"clock_off":             "时钟有偏差",
		"rescheduled":           "节点未领取分配给它的批次",
		"quality_unasked":       "无法请求数据质量接口",
		"quality_unconfigured":  "批次在等待质量检查，但未配置质量接口",
		"paths_unchecked":       "无法检查输入路径",
		"probe_failed":          "探测失败",
		"probe_over":            "探测已恢复",
		"cold_start_done":       "冷启动已结束",
		"cold_start_left_alone": "冷启动未处理尚未结束的批次",
		"duty_hole":             "值班表有空缺",
		"ended_success":         "批次运行成功",
		"ended_failed":          "批次运行失败",
		"ended_killed":          "批次已被终止",
		"ended_skipped":         "批次已被跳过",
		"raised":                "有人发出告警",
		"message_given_up":      "有消息未能送达",
		"channel_down":          "某个告警渠道无法发送",
		"messages_expired":      "有消息因过期未发送",
	},
}

// what says what has happened; a kind that is not ours, such as one that a script raised, by its title.
func (l *language) what(kind, title string) string {
	if phrase, ok := kinds[l.name][kind]; ok {
		return phrase
	}
	if title != "" {
		return title
	}
	return cmp.Or(strings.ReplaceAll(kind, "_", " "), l.unknown)
}

func (l *language) level(v capri.Level) string {
	if v < 0 || int(v) >= len(l.levels) {
		v = 0
	}
	return l.levels[v]
}

// duration writes a length of time by its two largest units: "2 h 5 min".
func (l *language) duration(d time.Duration) string {
	if d < 0 {
		return ""
	}
	of := [4]time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second}
	for i, unit := range of {
		n := d / unit
		if n == 0 && i < len(of)-1 {
			continue
		}
		text := fmt.Sprintf("%d%s", n, l.units[i])
		// Seconds matter where there is nothing else.
		if i < 2 {
			if rest := d % unit / of[i+1]; rest > 0 {
				text += fmt.Sprintf(" %d%s", rest, l.units[i+1])
			}
		}
		return text
	}
	return ""
}

// time writes an instant as seen from now: the clock alone where it is the same day.
func (l *language) time(at, now capri.Instant, zone *time.Location, otherDay string) string {
	if at == 0 {
		return ""
	}
	t, layout := at.In(zone), otherDay
	y, m, d := t.Date()
	if y2, m2, d2 := now.In(zone).Date(); y == y2 && m == m2 && d == d2 {
		layout = l.clock
	}
	return t.Format(layout)
}

// fullTime names the zone twice, "CST (Asia/Shanghai)": the short name tells the two equal hours of an autumn night
// apart, and the long one which CST it is.
func (l *language) fullTime(at capri.Instant, zone *time.Location) string {
	if at == 0 {
		return ""
	}
	t := at.In(zone)
	short := zoneName(t)
	if long := zone.String(); long != short && long != "Local" {
		return fmt.Sprintf(l.zone, t.Format(l.full), short, long)
	}
	return t.Format(l.full) + " " + short
}

// zoneName is the short name of a time's zone; many have none but their offset.
func zoneName(t time.Time) string {
	short, _ := t.Zone()
	if strings.HasPrefix(short, "+") || strings.HasPrefix(short, "-") {
		return "UTC" + short
	}
	return short
}
