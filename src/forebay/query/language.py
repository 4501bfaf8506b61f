"""Which language a question is in, by its characters."""

from __future__ import annotations

import re

from forebay.kernel.stages import QueryLanguage

READ_CHARACTERS = 400
"""What is asked stands at the beginning; a pasted report behind it decides nothing."""

_PAIRS = (
    "这這们們来來说說时時会會国國开開关關问問题題么麼为為对對学學动動发發经經现現还還进進过過员員"
    "应應当當从從个個后後里裡两兩无無业業电電网網机機车車长長门門间間见見观觀点點头頭实實写寫买買"
    "卖賣读讀书書听聽话話语語请請谁誰谢謝让讓认認记記讲講许許论論设設证證识識词詞译譯试試详詳误誤"
    "课課调調谈談变變边邊达達运運远遠连連选選适適递遞逻邏钱錢银銀铁鐵错錯键鍵链鏈锁鎖镜鏡钟鐘针針"
    "领領频頻顺順须須预預顾顧额額类類总總终終结結给給统統续續维維绩績缩縮编編练練组組细細织織绍紹"
    "约約级級纪紀纸紙线線红紅热熱样樣树樹标標权權条條极極构構档檔检檢欢歡气氣汉漢没沒济濟测測湾灣"
    "满滿滤濾灯燈灵靈炉爐烟煙爱愛状狀独獨环環码碼确確离離种種称稱稳穩积積穷窮竞競笔筆节節药藥荐薦"
    "获獲营營装裝补補规規视視览覽觉覺触觸订訂计計讨討训訓议議评評诉訴诊診该該谓謂贝貝负負财財责責"
    "败敗货貨质質购購贵貴费費资資赛賽赢贏赶趕跃躍较較载載辅輔输輸辞辭农農郑鄭邮郵钥鑰险險阳陽阴陰"
    "阶階际際陆陸陈陳随隨难難静靜页頁项項顶頂风風飞飛饭飯馆館马馬驱驅验驗鱼魚鸟鳥黄黃龙龍龄齡齐齊"
    "备備复復够夠处處宁寧宝寶审審宽寬宾賓导導层層岁歲师師帐帳帮幫广廣库庫庆慶张張强強归歸录錄态態"
    "恶惡怀懷忆憶报報担擔择擇换換据據损損护護拥擁拟擬挂掛挥揮断斷旧舊显顯晓曉术術杂雜杀殺东東严嚴"
    "丢丟临臨举舉义義乐樂习習乡鄉产產亲親亿億仅僅仓倉价價众眾优優伟偉传傳伤傷体體侧側债債储儲儿兒"
    "兰蘭军軍决決况況冲沖净淨减減几幾凭憑则則刚剛创創删刪别別剂劑办辦务務劳勞势勢医醫华華协協单單"
    "卫衛压壓厂廠历歷厅廳县縣参參双雙号號吗嗎启啟响響哑啞唤喚团團园園图圖圆圓场場块塊坏壞声聲壳殼"
    "妇婦娱娛孙孫宫宮将將尔爾尽盡属屬带帶弹彈彻徹径徑忧憂惊驚戏戲战戰抢搶携攜摄攝敌敵数數暂暫湿濕"
    "温溫渐漸滚滾潜潛滞滯牵牽犹猶玛瑪画畫异異疗療盘盤监監盖蓋矿礦砖磚础礎硕碩礼禮祸禍绝絕继繼绪緒"
    "缓緩罗羅罚罰职職联聯肤膚脑腦腾騰脏髒舰艦艺藝苏蘇荣榮范範虑慮虽雖蓝藍袭襲誉譽诺諾谋謀贡貢贸貿"
    "赔賠赖賴趋趨轨軌转轉轮輪软軟轻輕迟遲迁遷违違郁鬱铺鋪销銷锅鍋镇鎮闭閉闲閒闻聞阅閱队隊韩韓颜顏"
    "饮飲饰飾骤驟骗騙鸡雞麦麥吨噸于於与與区區亚亞并並内內岛島党黨台臺争爭万萬击擊欧歐纳納刘劉奥奧"
    "兴興筑築伦倫制製围圍专專划劃鲁魯圣聖辖轄采採丽麗萨薩灭滅奖獎恒恆签簽杯盃系係胜勝游遊却卻莱萊"
    "并併夺奪准準乌烏冲衝枪槍卢盧届屆余餘顿頓遗遺驻駐云雲诸諸扩擴晋晉讯訊宪憲乱亂隶隸剧劇斗鬥鲜鮮"
    "占佔户戶废廢征徵叶葉乔喬简簡丰豐执執楼樓纽紐养養税稅币幣蒋蔣屿嶼辽遼坚堅泽澤闽閩颁頒邻鄰墙牆"
    "脉脈脱脫诗詩献獻诚誠桥橋腊臘志誌纷紛岭嶺坝壩坛壇兹茲辆輛仪儀阁閣册冊倾傾弃棄绿綠杨楊铜銅残殘"
    "厦廈粮糧庙廟干乾胁脅吴吳峡峽凯凱紧緊缘緣愿願诞誕钢鋼锋鋒钓釣逊遜绘繪阵陣历曆杰傑抚撫毁毀弥彌"
    "复複尽儘释釋灾災烧燒蛮蠻脏臟赵趙贯貫稣穌御禦锦錦凉涼励勵仑崙脚腳渊淵艳艷毕畢横橫阔闊干幹骑騎"
    "韦韋颗顆钦欽迹跡侨僑绕繞丝絲陕陝锡錫惯慣络絡枢樞辑輯胶膠谱譜周週庄莊筹籌访訪纵縱赞贊阀閥辉輝"
    "冈岡系繫扬揚丧喪赐賜萧蕭渔漁邓鄧虚虛粤粵回迴只隻沟溝篮籃汇匯赋賦猎獵摆擺汤湯轰轟迹蹟庞龐矶磯"
    "滨濱寻尋禄祿纯純冯馮韵韻综綜辈輩谷穀寿壽惨慘剑劍溃潰拨撥诏詔轴軸巩鞏喷噴托託盐鹽荆荊浆漿注註"
    "隐隱衔銜帅帥贫貧里裏颠顛辐輻赏賞婴嬰台颱碍礙栏欄锣鑼屡屢凤鳳贺賀润潤赠贈扰擾面麵栖棲吕呂祯禎"
    "咸鹹辟闢肃肅滥濫饼餅盗盜纲綱叙敘壮壯惩懲龟龜舆輿绥綏绳繩锐銳窝窩恋戀鹤鶴娲媧陇隴迈邁滩灘钻鑽"
    "扎紮卷捲赞讚奋奮鉴鑑辩辯坞塢贴貼虫蟲虏虜罢罷偿償狱獄侣侶莲蓮钒釩阎閻为爲妈媽兽獸叠疊垩堊亩畝"
    "诱誘鲍鮑讽諷馒饅沪滬鲸鯨涨漲颇頗缅緬抛拋询詢贾賈绸綢诛誅驾駕烟菸垒壘纬緯扫掃鸿鴻贩販浅淺胀脹"
    "伙夥丑醜俭儉铎鐸厉厲垦墾鸣鳴涡渦伪偽缴繳鸾鸞猪豬缔締汇彙发髮鲑鮭尝嘗沦淪凿鑿鸥鷗闪閃尸屍畴疇"
    "纤纖铭銘掳擄狭狹蓟薊践踐骚騷谴譴岗崗摇搖娄婁荡盪赣贛谨謹斩斬齿齒涂塗松鬆馅餡挡擋锥錐钠鈉嫔嬪"
    "踪蹤炽熾闵閔吁籲驶駛涌湧贞貞浓濃铝鋁劲勁宠寵籼秈诫誡禅禪轩軒辕轅绵綿闹鬧谧謐饥饑聪聰隽雋洁潔"
    "贤賢撑撐梦夢贬貶挟挾窑窯氢氫畅暢艰艱驳駁谐諧尧堯佣傭歼殲剥剝垄壟饷餉阐闡笼籠牺犧帜幟虾蝦谭譚"
    "勋勳瞩矚镰鎌冻凍坟墳纠糾升昇饿餓葱蔥鸭鴨夹夾鹅鵝苹蘋纹紋濒瀕侦偵揽攬廪廩朴樸镶鑲饱飽绣繡顽頑"
    "椭橢板闆祷禱拢攏杆桿亏虧纺紡垫墊碱鹼琼瓊饺餃绑綁胆膽窦竇辗輾炼煉尘塵惧懼谦謙悬懸颂頌钉釘讳諱"
    "顷頃淀澱咨諮仑侖炀煬鞑韃梁樑骏駿肾腎贪貪卧臥铺舖鸽鴿彦彥谅諒谕諭榄欖酿釀匀勻劝勸愤憤雾霧枫楓"
    "兖兗讼訟谏諫弑弒雇僱挤擠陨隕渗滲敛斂谚諺缮繕飘飄铅鉛蚕蠶猫貓浏瀏耻恥厌厭阈閾肠腸蚀蝕阂閡谒謁"
    "驯馴荚莢驿驛慑懾鹘鶻铸鑄萝蘿悦悅殡殯焕煥闸閘谊誼萤螢颈頸幸倖遥遙铃鈴侠俠镀鍍鸦鴉弯彎鹰鷹槛檻"
    "咏詠谯譙骊驪仆僕污汙锌鋅颖穎栅柵觊覬汹洶竖豎签籤缢縊筝箏俊儁夸誇睐睞橱櫥贿賄钟鍾玺璽瑷璦珲琿"
    "钳鉗泪淚赁賃柜櫃贷貸饲飼锂鋰谣謠线綫鸠鳩赎贖枥櫪颍潁钧鈞羡羨"
)
"""Common characters, each Simplified one with its Traditional one behind it."""
_SIMPLE = dict(zip(_PAIRS[1::2], _PAIRS[::2], strict=True))
_SHARED = frozenset(
    "后里几干余面谷台于云只斗丑系征志制准采表松郁沖范并占丰周回托辟咸御卷升夹板雇幸梁胡致欲注游伙"
    "佣扑"
    "朴仆党叶恒俊秘栖迹岩溪灾脏仑胜杯册吁呂污淀咨宁弥杰霉布借症群峰床凶泄巨岳尸秋庄"
)
"""Simplified forms that Traditional texts use, too: they tell nothing."""
_SIMPLIFIED = re.compile(f"[{''.join(sorted(set(_SIMPLE.values()) - _SHARED))}]")
_TRADITIONAL = re.compile(f"[{''.join(sorted(set(_SIMPLE) - _SHARED))}]")

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_OTHER = re.compile(
    "[\u0370-\u03ff\u0400-\u052f\u0590-\u06ff\u0900-\u0dff\u0e00-\u0e7f\u1100-\u11ff"
    "\u3040-\u30ff\u31f0-\u31ff\uac00-\ud7af]"
)
_LATIN_WORD = re.compile(r"[A-Za-z\u00c0-\u024f]{2,}")
_PLAIN_WORD = re.compile(r"(?<![A-Za-z0-9_\-])[a-z]{2,}(?![A-Za-z0-9_\-])")
"""Words that are no names, acronyms or identifiers: those stand in questions of any language."""


def language_of(text: str) -> QueryLanguage:
    """The language of a question; ``mixed`` where neither Chinese nor English carries it.

    A Han character says about as much as a Latin word. Languages of the Latin alphabet are not told
    apart.
    """
    head = text[:READ_CHARACTERS]
    han, foreign = len(_HAN.findall(head)), len(_OTHER.findall(head))
    if foreign > 1 and foreign * 4 > han:
        return "other"
    if not han:
        return "en"
    words = len(_LATIN_WORD.findall(head))
    plain = len(_PLAIN_WORD.findall(head))
    if plain >= 2 and han >= 2 and plain * 3 >= han and han * 3 >= words:
        return "mixed"
    if words > 2 * han:
        return "en"
    traditional = len(_TRADITIONAL.findall(head))
    return "zh-Hant" if traditional > len(_SIMPLIFIED.findall(head)) else "zh"
